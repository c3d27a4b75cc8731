/* Finds the GPT-2 models that nanoGPT's init_from names, in the working folder or in the cache
 * (data/hf_hub.h). */
#ifndef GPT_TRAIN_IO_HF_CACHE_H
#define GPT_TRAIN_IO_HF_CACHE_H

#include "base/file.h"

/* Returns true when `name` is gpt2, gpt2-medium, gpt2-large or gpt2-xl, the names that nanoGPT's
 * init_from accepts. */
bool hf_cache_is_name(const char *name);

/* Finds the folder of such a model: the folder of this name in the working folder, else the
 * cache's.  Downloads nothing.  Errors: GT_DATA with one line that names the places searched and
 * the command that downloads it; GT_USAGE when a path is too long. */
enum gt_status hf_cache_find(const char *name, char out[static FILE_PATH_MAX]);
/* Finds the model that a name such as init_from's means: one of those, OWNER/NAME in the cache, or
 * else a path.  Errors: those of hf_cache_find() and hf_hub_find(); GT_DATA for a name that is not
 * found but similar to those of known models, which the message names. */
enum gt_status hf_cache_model_find(const char *name, char out[static FILE_PATH_MAX]);

#endif
