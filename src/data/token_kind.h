/* Determines the kind of a file that is given as a token file: another program's token file, whose
 * header says where its ids are, or a file without 16-bit ids.
 *
 * nanoGPT's token files have no header, so any bytes can be read as one.  A file is refused only on
 * evidence that ids do not produce by chance: at least 40 bits of the first bytes that a format
 * prescribes, or numbers of another width (token_kind_of_numbers()).
 */
#ifndef GPT_TRAIN_DATA_TOKEN_KIND_H
#define GPT_TRAIN_DATA_TOKEN_KIND_H

#include "base/status.h"

/* The header of llm.c's token files (tokens.h). */
#define TOKEN_SHARD_HEADER_BYTES 1024
#define TOKEN_SHARD_MAGIC_U16 20240520
#define TOKEN_SHARD_VERSION_U16 1
#define TOKEN_SHARD_MAGIC_U32 20240801
#define TOKEN_SHARD_VERSION_U32 7

/* Enough for the header of every kind. */
#define TOKEN_KIND_HEAD_BYTES 4096

/* Where the ids of a file with a header are. */
struct token_layout {
    const char *format; /* its name in messages */
    uint64_t offset_bytes;
    uint64_t count;
    size_t width_bytes; /* 2 or 4, little-endian */
};

/* A kind of file that has no 16-bit ids.  `load` is the NumPy expression for its ids, whose file is
 * `p`; if it is NULL, `advice` says what to do, and if `tail` is not NULL, the file's name comes
 * between the two. */
struct token_kind {
    const char *name; /* with its article: "a Parquet file" */
    const char *load;
    const char *advice, *tail;
};

/* Sets *out if bytes[count] begin a supported file: NumPy's .npy with one dimension of <u2, <u4 or
 * <i4, llmq's BIN.TOK without masks, lit-gpt's LITPKDS of 16 or 32 bits, NeMo Automodel's shards.
 * Returns false for any other file. */
bool token_layout_find(const unsigned char *bytes, size_t count, struct token_layout *out);

/* Returns the kind of a file of `size_bytes` that begins with bytes[count], or NULL. */
const struct token_kind *token_kind_of_head(const unsigned char *bytes, size_t count,
                                            uint64_t size_bytes);

/* Returns the kind of the numbers in a sample of a file, or NULL for 16-bit ids.  The sample has
 * whole groups of eight bytes from places that are multiples of eight.  Without `sure`, it returns
 * a kind that the sample does not contradict; with `sure`, a kind that 16-bit ids imitate with a
 * probability below 2^-48. */
const struct token_kind *token_kind_of_numbers(const unsigned char *bytes, size_t count, bool sure);

/* Logs that the file at `path` is of this kind, with the command that converts it.  Returns
 * GT_DATA. */
enum gt_status token_kind_refuse(const struct token_kind *kind, const char *path);

#endif
