/* The element types of ggml: numbers in blocks that share a scale, for GGUF files.
 *
 * A row of a tensor is a whole number of blocks.  Blocks of 32 values have one scale, and perhaps a
 * minimum.  Blocks of 256, the "K" types, consist of 8 or 16 parts with scales of 6 or 8 bits,
 * which share a scale in turn.  Source: ggml d99724f, src/ggml-common.h (layouts) and
 * src/ggml-quants.c (the reference's choice of scales).
 */
#ifndef GPT_TRAIN_IO_GGML_BLOCK_H
#define GPT_TRAIN_IO_GGML_BLOCK_H

#include "base/dtype.h"

#define GGML_BLOCK_VALUES_MAX 256
#define GGML_BLOCK_BYTES_MAX 256

enum ggml_type {
    GGML_F32,
    GGML_F16,
    GGML_BF16,
    GGML_Q4_0,
    GGML_Q5_0,
    GGML_Q5_1,
    GGML_Q8_0,
    GGML_Q4_K,
    GGML_Q5_K,
    GGML_Q6_K,
    GGML_TYPES
};

struct ggml_block {
    const char *name;
    uint32_t number;      /* of the type in a GGUF file */
    size_t values, bytes; /* of a block */
    enum dtype dtype;     /* of a type without blocks; DTYPE_COUNT for block types, which have the
                             fields below */
    size_t scales, at;    /* the number of fp16 scales of a block, and the byte where they begin */
    double share, codes;  /* of ggml_is_near() */
    void (*encode)(const float *values, unsigned char *block);
    void (*decode)(const unsigned char *block, float *values);
};

extern const struct ggml_block ggml_blocks[GGML_TYPES];

/* Finds the type of a number in a file.  Returns false when it is none of the above. */
bool ggml_type_find(uint32_t number, enum ggml_type *out);

/* The type of a dtype: DTYPE_F32, DTYPE_F16 or DTYPE_BF16. */
enum ggml_type ggml_type_of(enum dtype dtype);

/* The bytes of `count` values, a whole number of blocks. */
size_t ggml_bytes(enum ggml_type type, size_t count);

/* out = `count` finite values, a whole number of blocks, in a type with blocks.  Returns false for
 * values whose scale overflows fp16. */
bool ggml_encode(enum ggml_type type, const float *values, size_t count, unsigned char *out);

/* Returns true if decoded[count] can come from a sound encoder of values[count]: the root mean
 * square of a block's errors is at most `share` times its largest value, plus `codes` times half of
 * the smallest step of fp16, by which a scale is rounded. */
bool ggml_is_near(enum ggml_type type, const float *values, const float *decoded, size_t count);

/* The same as ggml_encode() on several threads. */
bool ggml_encode_parallel(enum ggml_type type, const float *values, size_t count,
                          unsigned char *out, int threads);

#endif
