/* Finding the GPT-2 models that nanoGPT's init_from names, in the working folder or in the cache (data/hf_hub.h). */
#ifndef GPT_TRAIN_IO_HF_CACHE_H
#define GPT_TRAIN_IO_HF_CACHE_H

#include <stdbool.h>

#include "base/file.h"
#include "base/status.h"
#include "model/model.h"

/* Whether `name` is gpt2, gpt2-medium, gpt2-large or gpt2-xl: what nanoGPT's init_from knows. */
bool hf_cache_is_name(const char *name);
/* The same, and the model's shape, which needs no file. */
bool hf_cache_shape(const char *name, struct model_config *out);

/* The folder of such a model: one of this name in the working folder, else the cache's.  Nothing is downloaded.
 * Errors: GT_DATA with one line that names the places looked at and the command that downloads it; GT_USAGE when a path is
 * too long. */
enum gt_status hf_cache_find(const char *name, char out[static FILE_PATH_MAX]);

#endif
