/* Token files: a training or validation split as one long sequence of ids.
 *
 * These formats are read, and their first bytes distinguish them:
 *   nanoGPT   headerless little-endian uint16 (data/NAME/train.bin, val.bin; prepare.py of nanoGPT)
 *   llm.c     256 int32 of header ([0] magic, [1] version, [2] count), then the ids: magic 20240520
 *             version 1 uint16, magic 20240801 version 7 uint32 (dataloader.h of llm.c)
 *   others    llmq's, NeMo's, lit-gpt's and NumPy's (token_kind.h)
 * A file without a header that certainly does not have 16-bit ids is refused, and its kind is
 * named.  In the folder of NAME.bin, NAME.mask may say which tokens count as targets: 8 bytes
 * TOKEN_MASK_MAGIC, 8 bytes with the number of tokens R of a row, then one bit per token, the first
 * in the lowest bit.  The tokens are then conversations, packed into rows of R, and one more token.
 * They are in one file, whose mask is read when the file is opened.  A split may have many files
 * ("shards"); positions run through them in the order of their names.  Files are read by pread with
 * 64-bit offsets, through one staging buffer; nothing is allocated after opening.  Token files are
 * untrusted: every read compares every id with the vocabulary.
 */
#ifndef GPT_TRAIN_DATA_TOKENS_H
#define GPT_TRAIN_DATA_TOKENS_H

#include "base/hostmem.h"
#include "data/token_kind.h"

/* Values are part of the counter of RNG_EVAL: never renumber. */
enum token_split { TOKEN_TRAIN = 0, TOKEN_VAL = 1 };

/* A target that is ignored by the loss (PyTorch's and nanoGPT's ignore_index). */
#define BATCH_TARGET_IGNORED (-1)

#define TOKEN_MASK_MAGIC UINT64_C(0x31306b73616d7467) /* "gtmask01" */
#define TOKEN_MASK_HEADER_BYTES 16

/* The location of the tokens and the conditions they must satisfy.  Not needed after
 * token_source_open(). */
struct token_source_spec {
    const char *folder;       /* a dataset folder; used when path_count is 0 */
    const char *const *paths; /* or the files themselves, in this order */
    size_t path_count;
    enum token_split split; /* which files of `folder` to open */
    int64_t vocab_size;     /* every id must be below it; 0 when it is unknown */
    int64_t block_size;     /* at least one shard must have block_size + 1 tokens; 0: no check */
};

#define TOKEN_FILES_OPEN_MAX 128

struct token_shard {
    char *path;
    int fd; /* -1 while closed */
    uint64_t size_bytes;
    uint64_t data_offset; /* of the first id, in bytes */
    size_t width_bytes;   /* of an id: 2 or 4 */
    int64_t first;        /* position of the first id in the source */
    int64_t length;       /* in tokens */
    char *mask;           /* which tokens count, one bit each after the header; NULL: all */
};

/* An open split; the fields are read-only. */
struct token_source {
    struct token_shard *shards;
    size_t shard_count;
    int64_t length;
    int64_t vocab_size;
    int64_t row;       /* tokens of a row of packed conversations, or 0 */
    uint32_t id_limit; /* every id is below it */
    unsigned char *staging;
    size_t open_ring[TOKEN_FILES_OPEN_MAX]; /* indices of the open shards; once full, the oldest is
                                               at open_next */
    size_t open_count, open_next;
};

/* "train" or "val". */
const char *token_split_name(enum token_split split);

/* Opens and validates a split.  In a folder, SPLIT.bin is used alone when it exists; otherwise
 * every file whose name ends in ".bin" and either begins with SPLIT or contains "_SPLIT" followed
 * by '_' or '.', sorted by name.  The format may differ between shards.  A shard shorter than
 * block_size + 1 tokens causes a warning and provides no samples.  Errors: GT_DATA (no such folder
 * or files, empty, odd size, another kind of file, a header that contradicts the size of its file,
 * an unknown version, no shard long enough; a mask of other tokens, or one by which no token
 * counts; a folder that prepared_folder_check() refuses), GT_IO, GT_NO_MEMORY. */
enum gt_status token_source_open(const void *owner, const struct token_source_spec *spec,
                                 struct token_source **out);
/* Sets *out to true when `folder` has files of a split; false when there is no such folder. Errors:
 * GT_IO. */
enum gt_status token_split_exists(const char *folder, enum token_split split, bool *out);

/* Sets out[count] to the ids at positions position .. position + count - 1, which must lie inside
 * the source (asserted); a read may cross shards.  On failure `out` is undefined. Errors: GT_DATA
 * (an id outside the vocabulary: file, position in it, id and vocabulary are named; a file that
 * became shorter since it was opened), GT_IO. */
enum gt_status token_source_read(struct token_source *source, int64_t position, int64_t count,
                                 int32_t *out);

/* Returns how many of the `count` tokens count as targets, and sets the others of targets[count],
 * unless that is NULL, to BATCH_TARGET_IGNORED. */
int64_t token_source_mask(const struct token_source *source, int64_t position, int64_t count,
                          int32_t *targets);

/* Finds the largest id by reading everything.  Errors: those of token_source_read(). */
enum gt_status token_source_largest(struct token_source *source, int32_t *out);

/* Computes the CRC-32C of 16 pieces of up to 1,024 ids, evenly spread over the split, and of their
 * mask.  It detects different data, but not every change of a few tokens.  Errors: those of
 * token_source_read(). */
enum gt_status token_source_digest(struct token_source *source, uint32_t *out);

/* ---- the folder of a data set that gpt-prepare wrote ---- */

#define PREPARE_MANIFEST_NAME "manifest.json"
#define PREPARE_MANIFEST_BYTES_MAX ((size_t)256 << 20)
#define PREPARE_STATE_NAME ".gpt-prepare.state"
#define PREPARE_STATE_BYTES_MAX ((size_t)256 << 20)
/* The progress of a run by its state file. */
enum prepare_phase { PREPARE_PHASE_NEW, PREPARE_PHASE_ENCODE, PREPARE_PHASE_COMMIT };

/* For readers of a data set: returns GT_DATA for a folder in which a run was stopped between
 * removing the old data set and completing the new one.  Folders without gpt-prepare's state pass.
 * Errors: GT_IO, GT_NO_MEMORY. */
enum gt_status prepared_folder_check(const char *folder);

#endif
