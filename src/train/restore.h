/* Where a run begins and how it is kept: from scratch, from its own checkpoint, or from a folder of weights.
 *
 * The glue between checkpoints (io/) and a session: names and shapes of the model's parameters on one side, tensors of the
 * executor on the other.
 */
#ifndef GPT_TRAIN_TRAIN_RESTORE_H
#define GPT_TRAIN_TRAIN_RESTORE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/hostmem.h"
#include "base/status.h"
#include "config/config.h"
#include "data/tokenizer.h"
#include "io/checkpoint.h"
#include "io/export_hf_tokens.h"
#include "train/feed.h"
#include "train/loss_scaler.h"
#include "train/session.h"

/* What a checkpoint stores beside tensors and the configuration. */
struct run_state {
    int64_t iter;         /* the next iteration */
    int64_t adam_step;    /* updates applied */
    int64_t evaluations;  /* done so far */
    int64_t samples_seen; /* sequences trained on */
    int64_t skipped;      /* updates that were skipped */
    double best_val_loss; /* infinity: none yet */
    bool evaluated;       /* iteration `iter` has been evaluated already */
    struct session_choices choices;
    struct loss_scaler loss_scaler;
};

/* Where the weights come from; `checkpoint` is NULL for scratch. */
struct restore_source {
    struct checkpoint *checkpoint;
    struct checkpoint *weights; /* the same without its optimizer, where nothing is trained; else NULL */
    bool resume;                /* optimizer state too */
    bool own;                   /* and it is out_dir's last checkpoint: the run goes on in place */
    bool branch;         /* or one that out_dir keeps from before: that run's later ones are an earlier run's now */
    bool convert_states; /* which is stored in another format than the run's */
};

/* Finds out where the run begins.  Fills from a checkpoint what this invocation's configuration did not say, and says in
 * `model` what the model looks like; `folder` is the dataset's, whose tokenizer gives the vocabulary of a new model.
 * Errors: GT_DATA, GT_IO, GT_USAGE, GT_UNSUPPORTED. */
enum gt_status restore_open(struct hostmem *mem, struct config *config, const char *folder,
                            struct restore_source *source, struct run_state *state, struct model_config *model);
/* The same for programs that only use a model: out_dir's or init_from's weights. */
enum gt_status restore_open_weights(struct hostmem *mem, const struct config *config, struct restore_source *source);
void restore_close(struct restore_source *source);

/* Says so where a resumed run computes otherwise than the run that wrote the checkpoint, so that bits will differ; with
 * strict_resume refuses it.  Errors: GT_USAGE. */
enum gt_status restore_differences_check(const struct session *session, const struct restore_source *source);

/* The same where this invocation changed keys on which results depend.  Keys that the checkpoint does not say pass.
 * Errors: GT_USAGE. */
enum gt_status restore_keys_check(const struct config *config, const struct restore_source *source);

/* What the splits are, by enum token_split; see feed_digest(). */
struct restore_data {
    char text[2][FEED_DIGEST_MAX];
};

/* The same where a resumed run has other data than the checkpoint's, so that its batches are others.  A checkpoint that does
 * not say passes.  Errors: GT_USAGE. */
enum gt_status restore_data_check(const struct config *config, const struct restore_source *source,
                                  const struct restore_data *data);

/* The loss scaler of a run in `dtype`: as the checkpoint left it, or GradScaler's first state.  Errors: GT_DATA. */
enum gt_status restore_loss_scaler(const struct restore_source *source, enum dtype dtype, struct loss_scaler *out);

/* Weights (and moments) onto the device: initial values of `seed`, or the checkpoint's. */
enum gt_status restore_weights(struct session *session, const struct restore_source *source, uint64_t seed);

/* Refuses a tokenizer that is not the one that the checkpoint was trained with; `what` names it in the line.  A checkpoint
 * that does not say, and no tokenizer, pass.  Errors: GT_DATA. */
enum gt_status restore_tokenizer_check(const struct restore_source *source, const struct tokenizer *tokenizer,
                                       const char *what);

/* What a save needs beside the state: made once, so that saving allocates nothing of ours. */
struct restore_saver {
    struct session *session;
    struct checkpoint_tensor *tensors; /* the parameters as io/ sees them */
    json_t *configuration;             /* echo */
    json_t *plan;
    struct restore_data data;
    char
        *tokens[EXPORT_HF_TOKENS_OF_RUN]; /* the dataset's tokenizer, as the files beside the checkpoint; NULL = none */
    char tokenizer_hash[32];              /* "crc32c:89abcdef", or empty */
    bool tokens_written;
    bool replaces; /* an earlier run, which has a folder of its own since the first save */
    const char
        *metrics;  /* the name under which the lines wait of the run that this one does not go on; NULL where it does */
    int64_t after; /* kept checkpoints beyond this iteration are that run's too */
};
/* `tokenizer` may be NULL.  Errors: GT_NO_MEMORY. */
enum gt_status restore_saver_create(struct session *session, const struct tokenizer *tokenizer,
                                    const struct restore_data *data, struct restore_saver *out);
void restore_saver_destroy(struct restore_saver *saver);

/* For a run that goes on in its own folder: a kill between a save and the tokenizer may have left out_dir without some of
 * its files, and 0.2.0 put gpt_tokenizer.json there only.
 * Errors: GT_IO. */
enum gt_status restore_tokenizer_repair(struct restore_saver *saver);

/* Saves the run to out_dir.  What another run left there is kept aside before, and the last checkpoints of this one as `keep`
 * says; after the first save of a run the tokenizer is put beside it, for gpt-sample and transformers. */
enum gt_status restore_save(struct restore_saver *saver, const struct run_state *state);

#endif
