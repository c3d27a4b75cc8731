/* Sample order: which block of tokens each sample of a step reads.  Builds the batches of these
 * samples.
 *
 * A sample is block_size + 1 consecutive tokens inside one shard (the inputs, and the targets
 * shifted by one); no sample crosses a shard boundary.  Its position is a pure function of (seed,
 * step, sample), the same for any micro-batch, rank count or backend; there is no state to save.
 *   random   a uniform draw over all starts, with replacement.  A shard of n tokens has n -
 *            block_size starts, so shards are weighted by their size (nanoGPT train.py get_batch:
 *            randint(len - block_size)).  In packed conversations (tokens.h), a draw gives a row.
 *   epoch    non-overlapping blocks; each is read exactly once per epoch, in an order that differs
 *            between epochs.  Samples are numbered step * samples_per_step + sample; an epoch may
 *            end in the middle of a step.
 */
#ifndef GPT_TRAIN_DATA_SAMPLER_H
#define GPT_TRAIN_DATA_SAMPLER_H

#include "base/hostmem.h"
#include "data/tokens.h"

enum sampler_kind { SAMPLER_RANDOM, SAMPLER_EPOCH };

struct sampler_spec {
    const struct token_source *source; /* used only during the call */
    enum sampler_kind kind;
    uint64_t seed;
    int64_t block_size;       /* T >= 1 */
    int64_t samples_per_step; /* sequences per update over all micro-batches and ranks, >= 1, below
                                 2^31 */
};

struct sampler;

/* Errors: GT_DATA when no shard has block_size + 1 tokens, GT_NO_MEMORY. */
enum gt_status sampler_create(const void *owner, const struct sampler_spec *spec,
                              struct sampler **out);

/* Returns the position in the source of the first token of sample `sample` (0 <= sample <
 * samples_per_step) of `step` (0 <= step < 2^32). */
int64_t sampler_position(const struct sampler *sampler, int64_t step, int64_t sample);

/* Like sampler_position(), for a random evaluation batch: sample number `sample` of evaluation
 * number `evaluation` (both below 2^32).  Always a uniform draw, as in nanoGPT's estimate_loss.
 * Training and each `split` draw from separate random streams. */
int64_t sampler_position_eval(const struct sampler *sampler, enum token_split split,
                              int64_t evaluation, int64_t sample);

/* Returns the number of possible starts. */
int64_t sampler_start_count(const struct sampler *sampler);

/* A window of a walk through the whole split.  The previous window has already counted the first
 * `ignored` targets. */
struct sampler_window {
    int64_t position;
    int64_t ignored;
};

/* Windows of block_size that cover the split once, in order.  Without `tail`, they are the blocks
 * of an epoch of sampler=epoch, and up to block_size - 1 targets at the end of each shard are
 * dropped.  With it, each such shard gets one more window that ends at its last token and overlaps
 * the previous window, whose targets it must not count again
 * (`ignored` > 0; see batch_targets_ignore()).  Shards that are too short for a window have none.
 */
int64_t sampler_window_count(const struct sampler *sampler, bool tail);
struct sampler_window sampler_window_at(const struct sampler *sampler, bool tail, int64_t index);

/* The keyed permutation of sampler=epoch: a bijection of [0, count) for each (seed, epoch), with
 * index in [0, count). A Feistel network of 8 rounds, with Philox as its round function, permutes
 * the integers below the smallest power of two that is at least `count`; it is iterated until the
 * result is in range (Black and Rogaway, "Ciphers with arbitrary finite domains", CT-RSA 2002). */
int64_t sampler_permute(uint64_t seed, int64_t epoch, int64_t count, int64_t index);

/* ---- batches: from the positions of samples to the data tensors of a program ----
 *
 * With S samples of T tokens, N = S * T rows:
 *   ids[N]       row s*T + t is token t of sample s
 *   targets[N]   the token after it (nanoGPT train.py get_batch: x and y); BATCH_TARGET_IGNORED if
 *                it does not count
 *   first[N]     the row t of its sample at which the document of a row begins: 0, or the row after
 *                a token `end`
 *   order[N]     the rows sorted by (id, row); the embedding's backward sums in this order, without
 *                float atomics
 *   starts[N+2]  [0] = g, the number of distinct ids; [1 + k] = where group k begins in order, for
 *                k = 0 .. g, so that [1 + g] = N.  Entries after that are 0.
 * All are int32.  The caller owns the tensors; the builder owns only scratch memory.
 */

struct batch_tensors {
    int32_t *ids;
    int32_t *targets;
    int32_t *first; /* or NULL */
    int32_t end;    /* the token that ends a document */
    /* In conversations this token also ends answers, and it ends a document only where it occurs
     * twice. */
    bool ends_twice;
    int32_t *order; /* batch_order_build() sets these two */
    int32_t *starts;
};

struct batch_builder;

/* Creates a builder for up to rows_max = N rows (below 2^31 - 2), in blocks of up to block_size_max
 * tokens. Memory: 4 * (N + block_size_max + 1) bytes and 1 KiB.  Errors: GT_NO_MEMORY. */
enum gt_status batch_builder_create(const void *owner, int64_t rows_max, int64_t block_size_max,
                                    struct batch_builder **out);

/* Reads the block of `block_size` = T tokens at `position` as sample `sample` of the tensors: its
 * rows of ids, targets and, unless it is NULL, first.  Allocates nothing; on failure these rows are
 * undefined.  Errors: those of token_source_read(). */
enum gt_status batch_sample_read(struct batch_builder *builder, struct token_source *source,
                                 int64_t position, int64_t block_size, int64_t sample,
                                 const struct batch_tensors *out);

/* Computes order[rows] and starts[rows + 2] from ids[rows] >= 0; rows >= 1.  Deterministic; O(rows)
 * per byte of the largest id. */
void batch_order_build(struct batch_builder *builder, const int32_t *ids, int64_t rows,
                       int32_t *order, int32_t *starts);

/* Sets targets[0 .. count - 1] to BATCH_TARGET_IGNORED. */
void batch_targets_ignore(int32_t *targets, int64_t count);

#endif
