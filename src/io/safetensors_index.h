/* model.safetensors.index.json: weights that are split into several safetensors files.
 *
 *   { "metadata": {...}, "weight_map": { "NAME": "model-00001-of-00002.safetensors", ... } }
 *
 * Source: transformers, modeling_utils.py, save_pretrained(); huggingface_hub, serialization.
 */
#ifndef GPT_TRAIN_IO_SAFETENSORS_INDEX_H
#define GPT_TRAIN_IO_SAFETENSORS_INDEX_H

#include "base/hostmem.h"
#include "base/status.h"
#include "io/safetensors.h"

#define SAFETENSORS_INDEX_NAME "model.safetensors.index.json"
#define SAFETENSORS_SHARDS_MAX 512

/* Opens FOLDER/model.safetensors.index.json and every file that it names, as one table.  Each tensor must be in the
 * file that the index gives, and in no other.  Errors: those of safetensors_open(); GT_DATA with one line that names
 * the index or the shard, and the field or tensor. */
enum gt_status safetensors_index_open(struct hostmem *mem, const char *folder, struct safetensors **out);

#endif
