/* Writes token files: one file per split, or shards of a fixed number of tokens.
 *
 * Files are written as NAME.partial and are all renamed together at the end (prepare_commit.c).  A
 * single file of 16-bit ids is in nanoGPT's format: no header.  Shards, and files of 32-bit ids,
 * are in llm.c's (tokens.h).  The number of tokens fully describes the written data, so a later
 * process can continue from it.
 */
#ifndef GPT_TRAIN_DATA_TOKEN_WRITER_H
#define GPT_TRAIN_DATA_TOKEN_WRITER_H

#include "base/hostmem.h"
#include "data/tokens.h"

#define TOKEN_WRITER_SPLITS 2
#define TOKEN_WRITER_NAME_BYTES 32
#define TOKEN_WRITER_SHARDS_MAX 999999
#define TOKEN_WRITER_PARTIAL ".partial"

struct token_writer_spec {
    const char *folder;   /* borrowed; outlives the writer */
    size_t width_bytes;   /* of a token: 2 or 4; of a mask: 1 */
    int64_t shard_tokens; /* up to INT32_MAX; 0: one file per split */
    int64_t mask_row; /* > 0: the files are masks (tokens.h) with this row, and a token is a byte of
                         them */
};

/* A finished file. */
struct token_file {
    char partial[TOKEN_WRITER_NAME_BYTES]; /* current and final name; both in the folder */
    char name[TOKEN_WRITER_NAME_BYTES];
    enum token_split split;
    int64_t tokens;
    uint64_t size_bytes;
    uint32_t crc32c;
};

struct token_writer;

/* Errors: GT_NO_MEMORY. */
enum gt_status token_writer_create(const void *owner, const struct token_writer_spec *spec,
                                   struct token_writer **out);

/* Takes over the first `tokens` tokens that an earlier writer wrote to a split, and truncates what
 * it wrote after them. Errors: GT_DATA (a file is missing or too short), GT_IO. */
enum gt_status token_writer_resume(struct token_writer *writer, enum token_split split,
                                   int64_t tokens);

/* Appends `count` tokens, given as little-endian bytes of the spec's width.  Errors: GT_IO (the
 * disk is full), GT_UNSUPPORTED (more tokens than a header can count, or too many shards),
 * GT_NO_MEMORY. */
enum gt_status token_writer_put(struct token_writer *writer, enum token_split split,
                                const unsigned char *bytes, int64_t count);
/* Flushes all appended tokens to disk.  Errors: GT_IO. */
enum gt_status token_writer_sync(struct token_writer *writer);
int64_t token_writer_tokens(const struct token_writer *writer, enum token_split split);

/* Reads the tokens of train, which token_writer_resume() took over, and adds up their weights.
 * Errors: GT_IO, GT_DATA. */
enum gt_status token_writer_weight(struct token_writer *writer, const int32_t *weights,
                                   int64_t vocab_size, int64_t *out_weight);
/* Ends writing, and finds the boundary of a split by position.  Validation gets the longest run of
 * tokens at the end of train whose weights add up to at most `val_weight`; once the sum is reached
 * exactly, no further tokens are added. *out_train_tokens is the number of tokens before them.
 * weights[id] >= 0 for each id of the vocabulary.  Only the last part of the files is read. Errors:
 * GT_IO, GT_DATA. */
enum gt_status token_writer_border(struct token_writer *writer, const int32_t *weights,
                                   int64_t vocab_size, int64_t val_weight,
                                   int64_t *out_train_tokens);

/* Ends writing and lists the final files: files[*out_count] is owned by the writer.  With
 * train_tokens >= 0, all tokens were written to train, and those from that position on become val:
 * the file with the boundary is copied from there on, and nothing that was written is changed.  A
 * headerless file whose first tokens look like a header is refused. Errors: GT_DATA, GT_IO,
 * GT_NO_MEMORY. */
enum gt_status token_writer_finish(struct token_writer *writer, int64_t train_tokens,
                                   const struct token_file **out_files, size_t *out_count);

/* Gives a file from token_writer_finish() its final size, header and name; a file with size_bytes 0
 * gets only its name.  May be repeated.  Errors: GT_IO, GT_DATA. */
enum gt_status token_file_finish(const struct token_writer_spec *spec,
                                 const struct token_file *file);

/* Returns true for the names of token files and masks, with or without TOKEN_WRITER_PARTIAL at the
 * end. */
bool token_writer_is_name(const char *name);

#endif
