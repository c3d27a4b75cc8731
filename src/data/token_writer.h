/* Writing token files: one file per split, or shards of a fixed number of tokens.
 *
 * Files are written as NAME.partial and get their names at the end, all together (prepare_commit.h).  A single file
 * of 16-bit ids is nanoGPT's: no header.  Shards, and files of 32-bit ids, are llm.c's (tokens.h).  What has been
 * written can be described by a few numbers, with which a later process goes on.
 */
#ifndef GPT_TRAIN_DATA_TOKEN_WRITER_H
#define GPT_TRAIN_DATA_TOKEN_WRITER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/hostmem.h"
#include "base/status.h"
#include "data/tokens.h"

#define TOKEN_WRITER_SPLITS 2
#define TOKEN_WRITER_NAME_BYTES 32
#define TOKEN_WRITER_SHARDS_MAX 999999
#define TOKEN_WRITER_PARTIAL ".partial"

struct token_writer_spec {
    const char *folder;   /* borrowed; outlives the writer */
    size_t width_bytes;   /* of a token: 2 or 4 */
    int64_t shard_tokens; /* up to INT32_MAX; 0: one file per split */
};

/* A file as it is so far. */
struct token_shard_state {
    int64_t tokens;
    uint32_t crc32c; /* of the tokens written, and of the header if there is one and the shard is full */
};

/* A file as it will be. */
struct token_file {
    char partial[TOKEN_WRITER_NAME_BYTES]; /* where it is now, and then; both in the folder */
    char name[TOKEN_WRITER_NAME_BYTES];
    enum token_split split;
    int64_t tokens;
    uint64_t size_bytes;
    uint32_t crc32c;
};

struct token_writer;

/* Errors: GT_NO_MEMORY. */
enum gt_status token_writer_create(struct hostmem *mem, const struct token_writer_spec *spec,
                                   struct token_writer **out);
/* Accepts NULL.  The files stay. */
void token_writer_destroy(struct token_writer *writer);

/* Opens the shards of an earlier writer and cuts off what was written after they were described.  Errors: GT_DATA (a
 * file is missing or too short), GT_IO, GT_NO_MEMORY. */
enum gt_status token_writer_resume(struct token_writer *writer, enum token_split split,
                                   const struct token_shard_state *shards, size_t count);

/* Appends `count` tokens as little-endian bytes of the width.  Errors: GT_IO (the disk is full), GT_UNSUPPORTED
 * (more tokens than a header can count, or too many shards), GT_NO_MEMORY. */
enum gt_status token_writer_put(struct token_writer *writer, enum token_split split, const unsigned char *bytes,
                                int64_t count);
/* What was put is on the disk afterwards.  Errors: GT_IO. */
enum gt_status token_writer_sync(struct token_writer *writer);
/* The shards of a split, the last one perhaps unfinished. */
size_t token_writer_shards(const struct token_writer *writer, enum token_split split,
                           const struct token_shard_state **out);
int64_t token_writer_tokens(const struct token_writer *writer, enum token_split split);

/* Ends writing, and finds the border of a split by position: the last tokens of train whose weights add up to at most
 * `val_weight`, and no more of them once it is reached.  *out_train_tokens is how many come before.  weights[id] >= 0 for
 * each id of the vocabulary.  Only the last part of the files is read.  Errors: GT_IO, GT_DATA. */
enum gt_status token_writer_border(struct token_writer *writer, const int32_t *weights, int64_t vocab_size,
                                   int64_t val_weight, int64_t *out_train_tokens);

/* Ends writing and says which files there will be: files[*out_count] is the writer's.  With train_tokens >= 0, all
 * tokens went to train, and those from that position on become val: the file that holds the border is copied from
 * there on, and nothing that was written is changed.  Without a header of its own, a file whose first tokens look
 * like one is refused.  Errors: GT_DATA, GT_IO, GT_NO_MEMORY. */
enum gt_status token_writer_finish(struct token_writer *writer, int64_t train_tokens,
                                   const struct token_file **out_files, size_t *out_count);

/* Whether only the second is there, as after a rename of the first to it.  Errors: GT_IO. */
enum gt_status token_writer_is_named(const char *partial, const char *path, bool *out);

/* Gives a file that token_writer_finish() described its final size, header and name.  May be repeated.  Errors:
 * GT_IO, GT_DATA. */
enum gt_status token_file_settle(const struct token_writer_spec *spec, const struct token_file *file);

/* True for the names of token files, with TOKEN_WRITER_PARTIAL behind them or not. */
bool token_writer_is_name(const char *name);

#endif
