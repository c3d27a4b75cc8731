/* Whether a data set is still what gpt-prepare made. */
#ifndef GPT_TRAIN_DATA_MANIFEST_CHECK_H
#define GPT_TRAIN_DATA_MANIFEST_CHECK_H

#include <stdint.h>

#include "base/status.h"
#include "data/tokenizer.h"

/* Compares the tokens of each split, by enum token_split, and the tokenizer (NULL: none) with manifest.json in `folder`.  A
 * folder without one, or with one that is not gpt-prepare's, passes, as does what a manifest does not say.  Errors: GT_DATA,
 * GT_IO, GT_NO_MEMORY. */
enum gt_status manifest_check(const char *folder, const int64_t tokens[static 2], const struct tokenizer *tokenizer);

#endif
