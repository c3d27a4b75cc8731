/* The parts of a GGUF file: little-endian numbers, counted strings, keys with typed values.
 *
 * Without a file the writer only counts, so that the same calls first give the number of keys and then write them.  The
 * first failure is kept in `status`, and later calls do nothing.  Source: ggml's docs/gguf.md, version 3.
 */
#ifndef GPT_TRAIN_IO_GGUF_H
#define GPT_TRAIN_IO_GGUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/dtype.h"
#include "base/file.h"
#include "base/status.h"

#define GGUF_VERSION 3
#define GGUF_ALIGNMENT 32
#define GGUF_BUFFER_BYTES 16384

/* Constants of the format. */
enum gguf_type { GGUF_UINT32 = 4, GGUF_INT32 = 5, GGUF_FLOAT32 = 6, GGUF_BOOL = 7, GGUF_STRING = 8, GGUF_ARRAY = 9 };
enum gguf_token { GGUF_TOKEN_NORMAL = 1, GGUF_TOKEN_CONTROL = 3, GGUF_TOKEN_UNUSED = 5 };

struct gguf {
    struct file_replacement *file; /* NULL: only count */
    enum gt_status status;
    uint64_t keys;
    uint64_t size_bytes;
    size_t used;
    unsigned char buffer[GGUF_BUFFER_BYTES];
};

void gguf_bytes(struct gguf *gguf, const void *bytes, size_t count);
void gguf_u32(struct gguf *gguf, uint32_t value);
void gguf_u64(struct gguf *gguf, uint64_t value);
void gguf_string(struct gguf *gguf, const char *text, size_t count);
/* Pads with zeros to a multiple of GGUF_ALIGNMENT. */
void gguf_align(struct gguf *gguf);
/* Writes the buffer to the file.  Returns the first failure so far. */
enum gt_status gguf_flush(struct gguf *gguf);

void gguf_key(struct gguf *gguf, const char *key, enum gguf_type type);
void gguf_key_u32(struct gguf *gguf, const char *key, uint32_t value);
void gguf_key_f32(struct gguf *gguf, const char *key, float value);
void gguf_key_bool(struct gguf *gguf, const char *key, bool value);
void gguf_key_string(struct gguf *gguf, const char *key, const char *text);
/* Begins an array; the caller then writes `count` elements of `type`. */
void gguf_key_array(struct gguf *gguf, const char *key, enum gguf_type type, uint64_t count);

/* ggml's number for a dtype: F32 0, F16 1, BF16 30; and for general.file_type: 0, 1, 32. */
uint32_t gguf_tensor_type(enum dtype dtype);
uint32_t gguf_file_type(enum dtype dtype);

#endif
