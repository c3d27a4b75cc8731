/* A model's generation_config.json, which accompanies its tokenizer into data, runs and exports. */
#ifndef GPT_TRAIN_DATA_TOKENIZER_GENERATION_H
#define GPT_TRAIN_DATA_TOKENIZER_GENERATION_H

#include "base/json.h"
#include "data/tokenizer.h"

#define GENERATION_BYTES_MAX ((size_t)1 << 16)

/* Gives the tokenizer a folder's file, and the padding token that tokenizer_config.json names,
 * unless it has an object already.  A broken file counts as none, as does one that only repeats
 * config.json (_from_model_config).  Errors: GT_IO, GT_NO_MEMORY. */
enum gt_status tokenizer_generation_read(const char *folder, struct tokenizer *tokenizer);
/* *out = the object, which is empty if there is none or no tokenizer; release it with
 * json_decref().  Errors: GT_NO_MEMORY. */
enum gt_status tokenizer_generation_get(const struct tokenizer *tokenizer, json_t **out);
/* Returns the id in a field, a number or the item `index` of a list, or -1. */
int64_t tokenizer_generation_id(const json_t *object, const char *field, size_t index);

#endif
