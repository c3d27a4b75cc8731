/* How every program begins and ends, and the answer to --version. */
#ifndef GPT_TRAIN_CLI_EXIT_STATUS_H
#define GPT_TRAIN_CLI_EXIT_STATUS_H

#include "base/status.h"

/* Gives each of the descriptors 0 to 2 that is closed to /dev/null, so that no file of ours gets one of these numbers; reading
 * and writing them still fails.  Before anything is opened; again does no harm. */
void program_descriptors_hold(void);
/* The same; names the program in its log; a write that fails is an error from here on, and no signal. */
void program_begin(const char *name);
/* Prints the answer to --version: the release, and what it was built with. */
void program_version_print(const char *name);
/* The exit status: 128 + n after signal n; 128 + SIGPIPE where nobody reads standard
 * output any more; 1, with a line, where it was lost otherwise; else status_exit_code(). */
int program_exit_status(enum gt_status status);

#endif
