/* How every program begins and ends.
 *
 * An unfinished write to standard output (a full disk, a closed pipe) is a failure of the whole program, so that nobody
 * takes half an answer for a whole one.
 */
#include "cli/exit_status.h"

#include "base/log.h"
#include "train/stop.h"

void program_begin(const char *name)
{
    log_program_set(name);
    stop_ignore_writes();
}

int program_exit_status(enum gt_status status)
{
    bool written = !log_output_is_lost();
    if (status == GT_STOPPED && stop_requested())
        return 128 + stop_requested();
    if ((status == GT_OK || status == GT_IO) && !written) {
        log_error("standard output could not be written");
        return 1;
    }
    return status_exit_code(status);
}
