/* Judges a model: measures its perplexity on a token file, and its accuracy on questions.
 *
 * Nothing is trained: neither gradients nor moments are planned, and nothing is written.
 */
#ifndef GPT_TRAIN_TRAIN_JUDGE_H
#define GPT_TRAIN_TRAIN_JUDGE_H

#include <stdbool.h>

#include "base/hostmem.h"
#include "base/status.h"
#include "config/config.h"

/* Returns true when eval_data or hellaswag is set. */
bool judge_is_wanted(const struct config *config);

/* Loads the model that init_from names and prints the results that the configuration requests.  Errors: GT_USAGE (from
 * scratch; a context longer than the model's), GT_DATA, GT_IO, GT_NO_MEMORY, GT_NO_FIT, GT_STOPPED. */
enum gt_status judge_run(struct hostmem *mem, const struct config *config);

#endif
