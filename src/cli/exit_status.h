/* The start and the end of every program, and --version. */
#ifndef GPT_TRAIN_CLI_EXIT_STATUS_H
#define GPT_TRAIN_CLI_EXIT_STATUS_H

#include "base/status.h"

/* Opens /dev/null on each closed descriptor from 0 to 2, so that no file of ours gets one of these numbers.  Reading
 * and writing them still fails.  Call it before anything is opened; further calls are harmless. */
void program_descriptors_hold(void);
/* Calls program_descriptors_hold(), sets the name for log lines, and makes failed writes errors instead of signals. */
void program_begin(const char *name);
/* Prints the release, and the backends and libraries that it was built with. */
void program_version_print(const char *name);
/* Returns the exit status: 128 + n after GT_STOPPED by signal n; 128 + SIGPIPE when the reader of standard output is
 * gone; 1, with a log line, when standard output could not be written for another reason; else status_exit_code(). */
int program_exit_status(enum gt_status status);

#endif
