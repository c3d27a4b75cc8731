/* The GGUF container, version 2 and 3: keys with typed values, a list of tensors, and their data.
 *
 * A file is untrusted: every count, length and offset is checked against the bytes that are there
 * before it is used, and nothing in the file becomes an allocation size.  Source: ggml's
 * docs/gguf.md.
 */
#ifndef GPT_TRAIN_IO_GGUF_H
#define GPT_TRAIN_IO_GGUF_H

#include "base/hostmem.h"
#include "io/ggml_block.h"

#define GGUF_MAGIC "GGUF"
#define GGUF_VERSION 3
#define GGUF_ALIGNMENT 32
#define GGUF_NAME_MAX 128 /* of a key or a tensor, with the terminating zero */
#define GGUF_RANK_MAX 4
#define GGUF_KEYS_MAX 4096
#define GGUF_TENSORS_MAX 16384
#define GGUF_HEAD_BYTES_MAX ((size_t)256 << 20) /* of everything before the data */

enum gguf_value {
    GGUF_UINT8,
    GGUF_INT8,
    GGUF_UINT16,
    GGUF_INT16,
    GGUF_UINT32,
    GGUF_INT32,
    GGUF_FLOAT32,
    GGUF_BOOL,
    GGUF_STRING,
    GGUF_ARRAY,
    GGUF_UINT64,
    GGUF_INT64,
    GGUF_FLOAT64,
    GGUF_VALUES
};

/* A key; of an array also the type and number of its elements. */
struct gguf_key {
    char name[GGUF_NAME_MAX];
    enum gguf_value type, element;
    size_t at; /* of the value, or the first element, in the head */
    uint64_t count;
};

struct gguf_tensor {
    char name[GGUF_NAME_MAX];
    int32_t rank;
    int64_t dims[GGUF_RANK_MAX]; /* dims[0] is the fastest */
    uint32_t number;             /* of the type */
    uint64_t offset_bytes;       /* from the beginning of the file */
};

/* An open file's head.  Read-only for callers. */
struct gguf {
    const char *path; /* borrowed */
    unsigned char *bytes;
    size_t count, at; /* at: for the parser */
    uint64_t file_bytes;
    size_t key_count, tensor_count;
    struct gguf_key *keys;
    struct gguf_tensor *tensors;
};

/* Returns true if `path` is a file that begins like a GGUF file. */
bool gguf_is_file(const char *path);
/* Reads and checks the head of `path`, which outlives the result.  Memory: the head.  Errors:
 * GT_IO, GT_NO_MEMORY; GT_DATA and GT_UNSUPPORTED with one line that names the file and the key or
 * tensor. */
enum gt_status gguf_open(const void *owner, const char *path, struct gguf **out);

/* Find a key or a tensor; NULL: there is none. */
const struct gguf_key *gguf_key_find(const struct gguf *gguf, const char *name);
const struct gguf_tensor *gguf_tensor_find(const struct gguf *gguf, const char *name);

/* Get the value of a key: an integer or a bool; a real; a text, which is not terminated.  Return
 * false when there is no such key of this kind. */
bool gguf_integer(const struct gguf *gguf, const char *name, int64_t *out);
bool gguf_real(const struct gguf *gguf, const char *name, double *out);
bool gguf_text(const struct gguf *gguf, const char *name, const char **out, size_t *out_count);

/* Gets the next text of an array of texts; *at is key->at before the first call. */
void gguf_next_text(const struct gguf *gguf, size_t *at, const char **out, size_t *out_count);

#endif
