/* A table of arrays in files, and the writer of safetensors files: see safetensors.h for the
 * format. */
#ifndef GPT_TRAIN_IO_SAFETENSORS_TABLE_H
#define GPT_TRAIN_IO_SAFETENSORS_TABLE_H

#include "base/dtype.h"
#include "base/file.h"
#include "base/hostmem.h"
#include "io/ggml_block.h"

#define SAFETENSORS_HEADER_BYTES_MAX ((size_t)4 << 20)
#define SAFETENSORS_TENSORS_MAX 6144
#define SAFETENSORS_NAME_MAX 128 /* with the terminating zero */
#define SAFETENSORS_RANK_MAX 8
#define SAFETENSORS_SHAPE_TEXT_MAX 192

#define SAFETENSORS_ZEROS (-1)

/* A permutation of elements.  From element `first` on, each group of rows * columns units of `unit`
 * elements is transposed: unit row * columns + column becomes unit column * rows + row.  A `unit`
 * of 0 means that nothing changes.  The inverse has rows and columns exchanged. */
struct tensor_order {
    size_t first, unit, rows, columns;
};

/* The permutation to a file's order, and the function that maps each value, a float32; NULL: none.
 */
struct tensor_form {
    struct tensor_order order;
    float (*map)(float);
};

struct safetensors_tensor {
    char name[SAFETENSORS_NAME_MAX];
    enum dtype
        dtype; /* DTYPE_COUNT: a dtype of the format without an enum dtype (BOOL, I64, ...) */
    int32_t rank;
    int64_t dims[SAFETENSORS_RANK_MAX];
    /* The rest concerns arrays in files. */
    int32_t file;              /* in the table's files, or SAFETENSORS_ZEROS: zeros, in no file */
    bool transposed;           /* rank 2 only: the file stores [dims[1], dims[0]] */
    struct tensor_order order; /* to the file's order */
    const struct ggml_block
        *block; /* the file has blocks of ggml's, which become DTYPE_F32, the dtype; or NULL */
    float (*map)(float);   /* of each value that is read as DTYPE_F32, or NULL */
    uint64_t offset_bytes; /* from the beginning of the file */
    uint64_t size_bytes;   /* set by safetensors_add() unless the dtype is DTYPE_COUNT */
    size_t elements;       /* the product of dims; set by safetensors_add() */
};

struct safetensors_file {
    int fd;
    uint64_t size_bytes;
    uint32_t header_crc32c; /* of everything before the data; 0 for another format */
    char *path;             /* owned by the table */
};

/* A table of arrays in files: those of a safetensors file in the order of their data, of several
 * such files, or arrays in files of other formats (llm.c's model files, nanoGPT's ckpt.pt) with
 * Hugging Face's names and shapes.  Readers of weights thus do not depend on the format.  The
 * fields are read-only for callers. */
struct safetensors {
    size_t count;
    struct safetensors_tensor *tensors;
    size_t file_count;
    struct safetensors_file *files;
    char path[FILE_PATH_MAX]; /* names the table in messages */
};

/* Creates an empty table.  Errors: GT_NO_MEMORY; GT_USAGE when the path is too long. */
enum gt_status safetensors_create(const void *owner, const char *path, struct safetensors **out);
/* Opens a file that contains arrays, which becomes the last of table->files.  safetensors_fd_add()
 * takes ownership of an open one, also on failure.  Errors: GT_IO, GT_NO_MEMORY. */
enum gt_status safetensors_file_add(struct safetensors *table, const char *path);
enum gt_status safetensors_fd_add(struct safetensors *table, const char *path, int fd,
                                  uint64_t size_bytes);
/* Adds an array.  Errors: GT_NO_MEMORY; GT_DATA, naming file and tensor: an invalid or duplicate
 * name, a size that overflows, bytes beyond the end of the file, too many tensors, a transposed
 * array whose rank is not 2. */
enum gt_status safetensors_add(struct safetensors *table, const struct safetensors_tensor *tensor);
/* Adds all arrays of `other`, which is of one file, and takes the file over.  Errors: those above.
 */
enum gt_status safetensors_join(struct safetensors *table, struct safetensors *other);

/* Returns the path of the file that has a tensor, for messages; the table's for zeros. */
const char *safetensors_path(const struct safetensors *table, size_t index);

/* Returns the place of element `index` in the other order.  Sets *out_run to the number of elements
 * from it on that stay together. */
size_t tensor_order_place(const struct tensor_order *order, size_t index, size_t *out_run);

/* Finds a tensor by name.  Returns false when there is none. */
bool safetensors_find(const struct safetensors *table, const char *name, size_t *out_index);

/* out[count] = elements first ... first+count-1 of a tensor as `dtype`: the tensor's own, or
 * DTYPE_F32 (exact) if that is F16 or BF16.  `crc32c`, unless NULL, is continued over the bytes as
 * they are stored; where blocks are decoded or the order differs, over those of `out`. first +
 * count may not exceed the tensor's elements.  Errors: GT_IO; GT_DATA when the file became shorter;
 * GT_UNSUPPORTED for other dtypes. */
enum gt_status safetensors_read(const struct safetensors *table, size_t index, size_t first,
                                size_t count, void *out, enum dtype dtype, uint32_t *crc32c);

/* The input of a writer.  Tensors are written in order of index, each from its first element to its
 * last. */
struct safetensors_source {
    void *context;
    size_t count;
    /* Sets name, dtype, rank and dims; returns false when there is no such tensor.  May be called
     * more than once per index, with the same result each time. */
    bool (*describe)(void *context, size_t index, struct safetensors_tensor *out);
    /* out[count] = elements first ... first+count-1 in the described dtype.  A failure logs its own
     * line. */
    enum gt_status (*fill)(void *context, size_t index, size_t first, size_t count, void *out);
    /* Receives the CRC-32C of a tensor's bytes after the last of them; may be NULL. */
    enum gt_status (*written)(void *context, size_t index, uint32_t crc32c);
    const mode_t *mode; /* exact permissions of the file, or NULL: see file_replacement_begin() */
};

/* Describes the written file. */
struct safetensors_result {
    uint64_t size_bytes;
    uint32_t crc32c;        /* of the whole file */
    uint32_t header_crc32c; /* of everything before the data */
};

/* Writes `path` atomically (file.h).  The bytes depend only on the source: the header keeps the
 * given order and is padded with spaces to a multiple of 8.  `staging` is aligned for the dtypes
 * and has room for at least one element; nothing is allocated.  Errors: GT_IO, errors of the
 * source's functions.  The old file is unchanged then. */
enum gt_status safetensors_write(const char *path, const struct safetensors_source *source,
                                 void *staging, size_t staging_bytes,
                                 struct safetensors_result *out);

/* Returns true when `name` is 1 to SAFETENSORS_NAME_MAX-1 characters of [A-Za-z0-9._-]. */
bool safetensors_name_valid(const char *name);
/* Writes a shape such as "[768,2304]" to `text`; returns `text`. */
char *safetensors_shape_text(char text[static SAFETENSORS_SHAPE_TEXT_MAX], const int64_t *dims,
                             int32_t rank);
#define SAFETENSORS_SHAPE_TEXT(dims, rank) \
    safetensors_shape_text((char[SAFETENSORS_SHAPE_TEXT_MAX]){0}, dims, rank)

#endif
