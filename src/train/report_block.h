/* What somebody who helps needs to know about a failure: a block between two marker lines, to be pasted as it is. */
#ifndef GPT_TRAIN_TRAIN_REPORT_BLOCK_H
#define GPT_TRAIN_TRAIN_REPORT_BLOCK_H

#include <stdio.h>

#include "base/status.h"
#include "config/config.h"
#include "train/session.h"

#define REPORT_BLOCK_BEGIN "---- gpt-train report, to be pasted where you ask for help ----"
#define REPORT_BLOCK_END "---- end of report ----"

/* Prints the block where `status` ends the process with 1 or 3, and nothing otherwise: a bad key or file needs no help.
 * `session` may be NULL, or have failed at any point of its opening; session_close() must not have been called since. */
void report_block_print(const struct config *config, const struct session *session, enum gt_status status, FILE *out);

#endif
