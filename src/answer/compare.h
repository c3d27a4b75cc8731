/* --compare: two plans side by side. */
#ifndef GPT_TRAIN_ANSWER_COMPARE_H
#define GPT_TRAIN_ANSWER_COMPARE_H

#include "config/config.h"

/* Plans `config` and the file that it compares with, and prints a table.  Errors: those of both
 * plans, GT_NO_FIT if one does not fit. */
enum gt_status compare_run(struct config *config);

#endif
