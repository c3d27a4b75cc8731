/* Batches: from the positions of samples to the data tensors of a program.
 *
 * With S samples of T tokens, N = S * T rows:
 *   ids[N]       row s*T + t is token t of sample s
 *   targets[N]   the token after it (nanoGPT train.py get_batch: x and y); BATCH_TARGET_IGNORED if it does not count
 *   first[N]     the row t of its sample at which the document of a row begins: 0, or the row after a token `end`
 *   order[N]     the rows sorted by (id, row); the embedding's backward sums in this order, without float atomics
 *   starts[N+2]  [0] = g, the number of distinct ids; [1 + k] = where group k begins in order, for k = 0 .. g, so that
 *                [1 + g] = N.  Entries after that are 0.
 * All are int32.  The caller owns the tensors; the builder owns only scratch memory.
 */
#ifndef GPT_TRAIN_DATA_BATCH_H
#define GPT_TRAIN_DATA_BATCH_H

#include "base/hostmem.h"
#include "data/tokens.h"

struct batch_tensors {
    int32_t *ids;
    int32_t *targets;
    int32_t *first; /* or NULL */
    int32_t end;    /* the token that ends a document */
    int32_t *order; /* these two are batch_order_build()'s */
    int32_t *starts;
};

struct batch_builder;

/* Creates a builder for up to rows_max = N rows (below 2^31 - 2), in blocks of up to block_size_max tokens.
 * Memory: 4 * (N + block_size_max + 1) bytes and 1 KiB.  Errors: GT_NO_MEMORY. */
enum gt_status batch_builder_create(const void *owner, int64_t rows_max, int64_t block_size_max,
                                    struct batch_builder **out);

/* Reads the block of `block_size` = T tokens at `position` as sample `sample` of the tensors: its rows of ids, targets
 * and, unless it is NULL, first.  Allocates nothing; on failure these rows are undefined.  Errors: those of
 * token_source_read(). */
enum gt_status batch_sample_read(struct batch_builder *builder, struct token_source *source, int64_t position,
                                 int64_t block_size, int64_t sample, const struct batch_tensors *out);

/* Computes order[rows] and starts[rows + 2] from ids[rows] >= 0; rows >= 1.  Deterministic; O(rows) per byte of the
 * largest id. */
void batch_order_build(struct batch_builder *builder, const int32_t *ids, int64_t rows, int32_t *order,
                       int32_t *starts);

/* Sets targets[0 .. count - 1] to BATCH_TARGET_IGNORED. */
void batch_targets_ignore(int32_t *targets, int64_t count);

#endif
