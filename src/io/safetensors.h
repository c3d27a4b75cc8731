/* The safetensors container: a JSON header, then named arrays.
 *
 *   8 bytes   length N of the header, little-endian
 *   N bytes   one JSON object: "NAME": {"dtype", "shape", "data_offsets": [begin, end]}, and
 *             "__metadata__"
 *   the rest  the arrays, row-major, little-endian, without gaps; offsets count from the end of the
 *             header
 *
 * A file is untrusted: nothing in it becomes a path or an allocation size before it has been
 * checked against the length of the file.  Names consist of characters [A-Za-z0-9._-].  Source: the
 * format's own description, huggingface/safetensors README.md, "Format"; the limits here are lower
 * than its 100 MB of header.
 */
#ifndef GPT_TRAIN_IO_SAFETENSORS_H
#define GPT_TRAIN_IO_SAFETENSORS_H

#include "io/safetensors_table.h"

/* Opens `path` and checks the whole header: every array is inside the file, no two overlap, and no
 * byte is unused.  A missing file is an error only if `must`; else *out is NULL. Memory: at most 4
 * MiB of text, its parse tree (released before the return) and about 250 bytes per tensor.  Errors:
 * GT_IO, GT_NO_MEMORY; GT_DATA with one line that names the file and the tensor or field;
 * GT_UNSUPPORTED for PyTorch's pickle files under this name. */
enum gt_status safetensors_open(const void *owner, const char *path, bool must,
                                struct safetensors **out);

#define SAFETENSORS_INDEX_NAME "model.safetensors.index.json"
/* Opens FOLDER/model.safetensors.index.json and every file that it names, as one table.  Each
 * tensor must be in the file that the index gives, and in no other.  Source: transformers,
 * modeling_utils.py, save_pretrained(); huggingface_hub, serialization.  Errors: those of
 * safetensors_open(); GT_DATA with one line that names the index or the shard, and the field or
 * tensor. */
enum gt_status safetensors_index_open(const void *owner, const char *folder,
                                      struct safetensors **out);

#endif
