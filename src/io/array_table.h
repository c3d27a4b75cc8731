/* A table of arrays stored in other files, in the form of an open safetensors file.
 *
 * Readers of other containers (shards, llm.c's model files, nanoGPT's ckpt.pt) fill such a table with Hugging Face's
 * names and shapes, so that the readers of weights do not depend on the container.  An array may be stored transposed,
 * or may be zeros that are in no file.  safetensors_find(), safetensors_read() and
 * safetensors_close() work on a table.
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

/* The location of an array. */
struct array_place {
    int32_t file;          /* from array_table_file_add(), or ARRAY_ZEROS */
    bool transposed;       /* rank 2 only: the file stores [dims[1], dims[0]] */
    uint64_t offset_bytes; /* from the beginning of the file */
};

struct array_file {
    int fd;
    uint64_t size_bytes;
    const char *path; /* owned by the table */
};

/* The part of a table that struct safetensors points to. */
struct array_places {
    struct array_file *files;
    size_t file_count, file_capacity;
    struct array_place *at; /* of each tensor */
    size_t capacity;        /* of `at` and of the table's tensors */
};

/* Creates an empty table for at most `file_capacity` files and `capacity` arrays.  `path` names it in messages.
 * Errors: GT_NO_MEMORY, GT_DATA when `capacity` exceeds SAFETENSORS_TENSORS_MAX. */
enum gt_status array_table_create(struct hostmem *mem, const char *path, size_t file_capacity, size_t capacity,
                                  struct safetensors **out);
/* Opens a file that contains arrays.  Errors: GT_IO. */
enum gt_status array_table_file_add(struct safetensors *table, const char *path, int32_t *out);
/* Adds an array.  `tensor` gives name, dtype, rank and dims, and size_bytes if the dtype is DTYPE_COUNT; the other
 * fields are computed.  Errors: GT_DATA, naming file and tensor: an invalid or duplicate name, a size that overflows,
 * bytes beyond the end of the file, a full table, a transposed array whose rank is not 2. */
enum gt_status array_table_add(struct safetensors *table, const struct safetensors_tensor *tensor,
                               const struct array_place *place);

/* For safetensors.c: reads elements first ... first+count-1 of an array of `dtype` at an offset of a file, as its
 * own dtype or, if that has 16 bits, as DTYPE_F32.  `crc32c` as in safetensors_read(). */
enum gt_status array_read(const struct array_file *file, uint64_t offset_bytes, enum dtype dtype, size_t first,
                          size_t count, void *out, enum dtype out_dtype, uint32_t *crc32c);
/* For safetensors.c: reads elements first ... first+count-1 of an array in its stored dtype or, if that has 16 bits, as
 * DTYPE_F32.  Errors: GT_IO, GT_DATA when a file became shorter. */
enum gt_status array_table_read(const struct safetensors *table, size_t index, size_t first, size_t count, void *out,
                                enum dtype dtype);
void array_table_release(struct safetensors *table);

#endif
