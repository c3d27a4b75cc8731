/* Checks that a data set is still the one that gpt-prepare made. */
#ifndef GPT_TRAIN_DATA_MANIFEST_CHECK_H
#define GPT_TRAIN_DATA_MANIFEST_CHECK_H

#include <stdint.h>

#include "base/status.h"
#include "data/tokenizer.h"

/* Compares the number of tokens of each split, indexed by enum token_split, and the tokenizer (NULL: none) with
 * manifest.json in `folder`.  A folder without a manifest, or with one that gpt-prepare did not write, passes; fields
 * that the manifest lacks are not checked.  Errors: GT_DATA, GT_IO, GT_NO_MEMORY. */
enum gt_status manifest_check(const char *folder, const int64_t tokens[static 2], const struct tokenizer *tokenizer);

#endif
