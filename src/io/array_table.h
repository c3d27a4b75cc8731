/* A table of arrays that lie somewhere in other files, in the form of an open safetensors file.
 *
 * Readers of other containers (shards, llm.c's model files, nanoGPT's ckpt.pt) fill such a table with Hugging Face's names
 * and shapes; whoever reads weights then need not know where they come from.  An array may be stored transposed, and may
 * be zeros that no file holds.  safetensors_find(), safetensors_read_f32() and safetensors_close() work on a table.
 */
#ifndef GPT_TRAIN_IO_ARRAY_TABLE_H
#define GPT_TRAIN_IO_ARRAY_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/file.h"
#include "base/hostmem.h"
#include "base/status.h"
#include "io/safetensors.h"

#define ARRAY_ZEROS (-1)

/* Where an array of the table lies. */
struct array_place {
    int32_t file;          /* of array_table_file_add(), or ARRAY_ZEROS */
    bool transposed;       /* of rank 2: the file holds [dims[1], dims[0]] */
    uint64_t offset_bytes; /* from the beginning of the file */
};

struct array_file {
    int fd;
    uint64_t size_bytes;
    char path[FILE_PATH_MAX];
};

/* The part of a table that struct safetensors points to. */
struct array_places {
    struct array_file *files;
    size_t file_count, file_capacity;
    struct array_place *at; /* of each tensor */
    size_t capacity;        /* of `at` and of the table's tensors */
};

/* An empty table for at most `file_capacity` files and `capacity` arrays.  `path` names it in messages.
 * Errors: GT_NO_MEMORY, GT_DATA when more than SAFETENSORS_TENSORS_MAX arrays are asked for. */
enum gt_status array_table_create(struct hostmem *mem, const char *path, size_t file_capacity, size_t capacity,
                                  struct safetensors **out);
/* Opens a file whose arrays are to be added.  Errors: GT_IO. */
enum gt_status array_table_file_add(struct safetensors *table, const char *path, int32_t *out);
/* Adds an array: name, dtype, rank and dims of `tensor` are read, the rest is computed (the bytes of a dtype that is none of
 * ours are read too).  Errors: GT_DATA, naming file and
 * tensor: an impossible name, one that is there already, a size that overflows, bytes beyond the end of the file, more
 * arrays than there is room for; a transposed array whose rank is not 2. */
enum gt_status array_table_add(struct safetensors *table, const struct safetensors_tensor *tensor,
                               const struct array_place *place);

/* For safetensors.c: elements first ... first+count-1 of an array, as it is stored or, where that is 16 bits, as DTYPE_F32.
 * Errors: GT_IO, GT_DATA when a file became shorter. */
enum gt_status array_table_read(const struct safetensors *table, size_t index, size_t first, size_t count, void *out,
                                enum dtype dtype);
/* The file that holds an array, for messages. */
const char *array_table_path(const struct safetensors *table, size_t index);
void array_table_release(struct safetensors *table);

#endif
