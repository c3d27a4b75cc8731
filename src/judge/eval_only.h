/* eval_only: evaluates a run once. */
#ifndef GPT_TRAIN_JUDGE_EVAL_ONLY_H
#define GPT_TRAIN_JUDGE_EVAL_ONLY_H

#include "base/hostmem.h"
#include "config/config.h"
#include "dist/dist.h"

/* Evaluates the model that init_from names on the data of the run, as the loop would, and prints a
 * sample if one is requested.  Writes no file.  `dist` is NULL, or this process is one of its
 * ranks.  Errors: GT_DIVERGED for a loss that is not finite, with the op that made it; GT_STOPPED;
 * as train_run(). */
enum gt_status eval_only_run(struct hostmem *mem, struct config *config, struct dist *dist);

#endif
