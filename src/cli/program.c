/* The start and the end of every program, and the check for a model.
 *
 * First the start repairs the state that the caller left: if a descriptor from 0 to 2 is closed, the first file that
 * we open gets its number, and text for the terminal would go into a checkpoint.  A program fails if it cannot write
 * all of its standard output, because half an answer looks like a whole one.  If the reader has gone (`| head`), the
 * program prints no message and returns the status of one that SIGPIPE killed.  program_start.c has the command line
 * of the programs with a struct config.
 */
#include "cli/program.h"

#include <config.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include "io/checkpoint.h"
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

bool program_answers(const char *name, bool help, bool version, void (*print_help)(void))
{
    if (help)
        print_help();
    else if (version)
        program_version_print(name);
    return help || version;
}

int program_exit_status(enum gt_status status)
{
    const int lost = log_output_error();
    if (status == GT_STOPPED && stop_requested())
        return 128 + stop_requested();
    if ((status == GT_OK || status == GT_IO) && lost == EPIPE)
        return 128 + SIGPIPE;
    if ((status == GT_OK || status == GT_IO) && lost != 0)
        return FAIL(1, "standard output could not be written: %s", strerror(lost));
    return status_exit_code(status);
}

enum gt_status program_model_check(const char *path)
{
    char earlier[FILE_PATH_MAX];
    enum checkpoint_kind kind;
    bool exists, begun;
    TRY(checkpoint_probe(path, &kind));
    if (kind != CHECKPOINT_NONE)
        return GT_OK;
    TRY(file_look(path, &exists));
    TRY(file_look(FILE_IN(path, "lock"), &begun)); /* gpt-train's: a run has begun */
    if (checkpoint_keep_earlier_last(path, earlier))
        return FAIL(GT_DATA, ERROR_NO_CHECKPOINT "%s: no model here; an earlier run is in %s", path, earlier);
    return FAIL(GT_DATA, ERROR_NO_CHECKPOINT "%s: %s", path,
                !exists ? "no such folder; train a model with gpt-train, or use --out_dir"
                : begun ? "no checkpoint yet; gpt-train saves the first one after eval_interval iterations"
                        : "no model here; train one with gpt-train, or use --out_dir");
}
