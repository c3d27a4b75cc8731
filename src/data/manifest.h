/* manifest.json of a data set, for its readers; prepare_manifest.c writes it. */
#ifndef GPT_TRAIN_DATA_MANIFEST_H
#define GPT_TRAIN_DATA_MANIFEST_H

#include "base/status.h"
#include "data/tokenizer.h"
#include "data/tokens.h"

#define PREPARE_MANIFEST_FORMAT "gpt-train-manifest"

/* Compares the number of tokens of each split, indexed by enum token_split, and the tokenizer
 * (NULL: none) with manifest.json in `folder`.  A folder without a manifest, or with one that
 * gpt-prepare did not write, passes; fields that the manifest lacks are not checked.  Errors:
 * GT_DATA, GT_IO, GT_NO_MEMORY. */
enum gt_status manifest_check(const char *folder, const int64_t tokens[static 2],
                              const struct tokenizer *tokenizer);
/* Sets *out to whether manifest.json in `folder` says that the data set was made of conversations.
 * Errors: GT_DATA, GT_IO, GT_NO_MEMORY. */
enum gt_status manifest_is_chat(const char *folder, bool *out);

#endif
