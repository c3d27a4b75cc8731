/* The feed: moves tokens from the token files to the data tensors of a program. */
#ifndef GPT_TRAIN_TRAIN_FEED_H
#define GPT_TRAIN_TRAIN_FEED_H

#include "base/hostmem.h"
#include "base/progress.h"
#include "config/config.h"
#include "data/mixture.h"
#include "data/sampler.h"
#include "data/tokenizer.h"
#include "data/tokens.h"
#include "session/resume_check.h"
#include "session/session.h"

/* A data set of the mixture. */
struct feed_part {
    struct token_source *source[2]; /* by enum token_split */
    bool has_val;                   /* false: the training tokens serve for both */
    struct sampler *sampler[2];
    struct sampler *evaluate_sampler[2]; /* samplers with blocks of evaluate_time tokens */
};

struct feed {
    struct hostmem *mem;
    const struct mixture *mixture; /* borrowed; NULL after feed_open_val() */
    struct feed_part
        parts[MIXTURE_MAX]; /* as in the mixture; the token file of feed_open_val() is the first */
    struct batch_builder *builder;
    struct batch_tensors tensors; /* host side of ids, targets, first, order, starts; first: NULL
                                     without document_mask */
    int64_t samples_per_step;
    int64_t block_size;
    int64_t evaluate_time; /* tokens per sample in an evaluation: eval_block_size, or block_size */
};

/* Opens train and val of each data set.  If one has no files of val, warns and evaluates its train
 * instead. `samples_max` is the largest batch of any program; `mixture` must outlive the feed.
 * Errors: GT_USAGE (rows of packed conversations that are not block_size), GT_DATA, GT_IO,
 * GT_NO_MEMORY. */
enum gt_status feed_open(struct hostmem *mem, const struct config *config,
                         const struct mixture *mixture, int64_t vocab_size, int64_t samples_max,
                         struct feed *out);
/* Opens a token file, or the val split of a folder, as the val split, for passes over all of it
 * with `time` tokens per sample.  If `path` is empty, there are only the tensors, which the caller
 * fills.  Errors: as above. */
enum gt_status feed_open_val(struct hostmem *mem, const struct config *config, const char *path,
                             int64_t vocab_size, int64_t time, int64_t samples_max,
                             struct feed *out);
/* With document_mask, takes the token that ends a document from `tokenizer` (NULL: none), or
 * refuses a tokenizer without one. */
enum gt_status feed_documents_set(struct feed *feed, const struct tokenizer *tokenizer);

/* Checks each data set against its manifest: see manifest_check(). */
enum gt_status feed_manifest_check(const struct feed *feed, const struct tokenizer *tokenizer);
/* Writes the length and the token_source_digest() of a split: "1003854 tokens, crc32c:89abcdef";
 * for several data sets the sum, the shares and a digest of digests: "1003854 tokens in shares
 * 0.7:0.3, crc32c:89abcdef". */
enum gt_status feed_digest(struct feed *feed, enum token_split split,
                           char text[static DATA_DIGEST_MAX]);

/* Returns the tokens that sample `sample` of training step `iter` comes from, and sets its first
 * position in them. */
struct token_source *feed_sample(const struct feed *feed, int64_t iter, int64_t sample,
                                 int64_t *out_position);
/* Returns how many targets of training step `iter` count; none do if all its samples are rows
 * without answers. */
int64_t feed_targets(const struct feed *feed, int64_t iter);
/* Uploads the host's tensors to those of the program. */
enum gt_status feed_upload(const struct feed *feed, struct session *session,
                           const struct program_io *io);
/* Starts micro-step `k` of an update whose scalars are in the host's copy: uploads its samples and
 * scalars and starts its program (exec_start).  With several ranks, only the one that computes the
 * micro-step does that; after the last micro-step of a round of parts all ranks add up its
 * gradients. */
enum gt_status feed_micro_step(struct feed *feed, struct session *session, int64_t iter, int32_t k);
/* ---- evaluation: the losses of random batches of a split (nanoGPT train.py estimate_loss), or of
 * all of it ---- */

/* Runs the evaluation program on the ids and targets that are on the device, and adds its sum of
 * losses to *sum. */
enum gt_status evaluation_batch_add(struct session *session, double *sum);

struct evaluation {
    struct session *session;
    struct feed *feed;
    struct progress *progress;
    int part;            /* the data set */
    int64_t samples;     /* number to draw; 0: every token of the split that has a context, once */
    int64_t windows;     /* with samples = 0: only the first `windows` windows; 0: all of them */
    int64_t iter;        /* selects the random draw of `samples` */
    bool must_be_finite; /* a loss that is not finite ends it, with an error that names the op */
};

struct evaluation_sum {
    double loss; /* in fp64 over fp32 row losses */
    int64_t targets;
};

/* Adds up the losses of a split's targets; `what` names the evaluation in the progress line.  If
 * none of the targets of a random draw counts, draws on until one does.  Errors: GT_STOPPED when a
 * signal came; GT_DATA when no target counts; GT_DIVERGED; those of the data and the device. */
enum gt_status evaluation_split_sum(const struct evaluation *evaluation, enum token_split split,
                                    const char *what, struct evaluation_sum *out);

#endif
