/* Where a run begins: from scratch, from its own checkpoint, or from a folder of weights.
 *
 * This is the glue between checkpoints (io/) and a session: names and shapes of the model's parameters on one side, tensors
 * of the executor on the other.
 */
#ifndef GPT_TRAIN_TRAIN_RESTORE_H
#define GPT_TRAIN_TRAIN_RESTORE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/hostmem.h"
#include "base/status.h"
#include "config/config.h"
#include "io/checkpoint.h"
#include "train/loss_scaler.h"
#include "train/session_plan.h"

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

/* The loss scaler of a run in `dtype`: as the checkpoint left it, or GradScaler's first state.  Errors: GT_DATA. */
enum gt_status restore_loss_scaler(const struct restore_source *source, enum dtype dtype, struct loss_scaler *out);

/* Weights (and moments) onto the device: initial values of `seed`, or the checkpoint's. */
enum gt_status restore_weights(struct session *session, const struct restore_source *source, uint64_t seed);

/* The parameters of the session's model, as io/ sees them; the caller frees the array.  Errors: GT_NO_MEMORY. */
enum gt_status restore_tensors(struct session *session, struct checkpoint_tensor **out);

#endif
