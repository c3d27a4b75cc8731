/* Measures a trained model: the perplexity of tokens, the answers to questions. */
#ifndef GPT_TRAIN_JUDGE_JUDGE_H
#define GPT_TRAIN_JUDGE_JUDGE_H

#include "base/hostmem.h"
#include "config/config.h"

/* Loads the model that init_from names and prints the results that the configuration requests.
 * Errors: GT_USAGE (from scratch; a context longer than the model's), GT_DATA, GT_IO, GT_NO_MEMORY,
 * GT_NO_FIT, GT_STOPPED. */
enum gt_status judge_run(struct hostmem *mem, const struct config *config);
/* Sets *out to the mean loss of ids[count] in windows of `window` tokens, on the cpu in float32;
 * tokens that fill no window do not count.  `model` is as for init_from.  Errors: as above. */
enum gt_status judge_ids(struct hostmem *mem, const char *model, int64_t window, const int32_t *ids,
                         int64_t count, double *out);

#endif
