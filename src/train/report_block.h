/* Prints a report on a failure, between two marker lines, for the user to paste where they ask for help. */
#ifndef GPT_TRAIN_TRAIN_REPORT_BLOCK_H
#define GPT_TRAIN_TRAIN_REPORT_BLOCK_H

#include <stdio.h>

#include "base/status.h"
#include "config/config.h"
#include "train/session.h"

#define REPORT_BLOCK_BEGIN "---- gpt-train report, to be pasted where you ask for help ----"
#define REPORT_BLOCK_END "---- end of report ----"

/* Prints the block if `status` ends the process with 1 or 3.  Prints nothing otherwise: a bad key or file needs no
 * help.  `session` may be NULL, or may have failed at any point of its opening, but session_close() must not have been
 * called. */
void report_block_print(const struct config *config, const struct session *session, enum gt_status status, FILE *out);

#endif
