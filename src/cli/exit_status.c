/* The start and the end of every program.
 *
 * First it repairs the state that the caller left: if a descriptor from 0 to 2 is closed, the first file that we open
 * gets its number, and text for the terminal would go into a checkpoint.  A program fails if it cannot write all of its
 * standard output, because half an answer looks like a whole one.  If the reader has gone (`| head`), the program
 * prints no message and returns the status of one that SIGPIPE killed.
 */
#include "cli/exit_status.h"

#include <config.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "train/stop.h"

void program_descriptors_hold(void)
{
    for (int fd = 0; fd <= 2; fd++) {
        /* Open it in the wrong direction, so that reads and writes fail as on a closed descriptor, and without
         * O_CLOEXEC, because child processes have the same problem.  If this fails, nothing changes. */
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF)
            (void)!open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY);
    }
}

void program_begin(const char *name)
{
    program_descriptors_hold();
    (void)signal(SIGCHLD, SIG_DFL); /* if the caller ignored it, our children would be reaped before we wait for them */
    log_program_set(name);
    stop_ignore_writes();
}

void program_version_print(const char *name)
{
    printf("%s (gpt-train) %s\nBackends:  %s\nLibraries: %s\n", name, PACKAGE_VERSION, BUILD_BACKENDS, BUILD_LIBRARIES);
}

int program_exit_status(enum gt_status status)
{
    const int lost = log_output_error();
    if (status == GT_STOPPED && stop_requested())
        return 128 + stop_requested();
    if ((status == GT_OK || status == GT_IO) && lost == EPIPE)
        return 128 + SIGPIPE;
    if ((status == GT_OK || status == GT_IO) && lost != 0) {
        log_error("standard output could not be written: %s", strerror(lost));
        return 1;
    }
    return status_exit_code(status);
}
