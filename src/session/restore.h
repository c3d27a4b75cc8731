/* Decides where a run begins: from scratch, from its own checkpoint, or from a folder of weights.
 */
#ifndef GPT_TRAIN_SESSION_RESTORE_H
#define GPT_TRAIN_SESSION_RESTORE_H

#include "base/hostmem.h"
#include "config/config.h"
#include "data/mixture.h"
#include "io/checkpoint.h"
#include "session/loss_scaler.h"
#include "session/session.h"

/* The run's counters and choices: the part of a checkpoint that is neither tensors nor
 * configuration. */
struct run_state {
    int64_t iter;         /* the next iteration */
    int64_t adam_step;    /* updates applied */
    int64_t evaluations;  /* done so far */
    int64_t samples_seen; /* sequences trained on */
    int64_t skipped;      /* updates skipped */
    int64_t length;       /* updates that `hours` allows, once ten were timed; 0: not known */
    double best_val_loss; /* infinity = none yet */
    bool evaluated;       /* iteration `iter` has been evaluated already */
    struct session_saved saved;
    struct loss_scaler loss_scaler;
};

/* The source of the weights; `checkpoint` is NULL for scratch. */
struct restore_source {
    struct checkpoint *checkpoint;
    char base[FILE_PATH_MAX]; /* the name of the model that new adapters, or those of `checkpoint`,
                                 are made for */
    bool resume;              /* the optimizer states are restored too */
    bool in_place;            /* `checkpoint` is out_dir's last one: the run continues in place */
    bool branch; /* `checkpoint` is an older one kept in out_dir: the later ones now belong to an
                    earlier run */
    const char *download; /* the name of a model that is planned without its weights, borrowed; NULL
                             otherwise */
    bool convert_states;  /* the stored states have another format than the run's */
};

/* Decides where the run begins.  Completes `config`: a checkpoint fills the keys that this
 * invocation did not set, and the data or the weights decide keys that were left open.  Describes
 * the model in `model`.  The tokenizer of the `mixture` gives the vocabulary of a new model.
 * Errors: GT_DATA, GT_IO, GT_USAGE, GT_UNSUPPORTED. */
enum gt_status restore_open(struct hostmem *mem, struct config *config,
                            const struct mixture *mixture, struct restore_source *source,
                            struct run_state *state, struct model_config *model);
/* Opens only the weights of out_dir or init_from, for programs that do not train. */
enum gt_status restore_open_weights(struct hostmem *mem, const struct config *config,
                                    struct restore_source *source);
/* Refuses data whose tokenizer is not that of the weights: the one that the checkpoint or its
 * folder names, else one with more tokens than the model.  `data` may be NULL; `folder` is the
 * dataset's.  Errors: GT_DATA and those of tokenizer_import(). */
enum gt_status restore_tokenizer_check(struct hostmem *mem, const struct config *config,
                                       const struct restore_source *source,
                                       const struct tokenizer *data, const char *folder);
/* Sets tokenizer->has_template if the model's folder or file has a chat template or one of the data
 * sets is of conversations. `tokenizer` may be NULL.  Errors: GT_DATA, GT_IO, GT_NO_MEMORY. */
enum gt_status restore_template_find(const struct config *config,
                                     const struct restore_source *source,
                                     const struct mixture *mixture, struct tokenizer *tokenizer);
void restore_close(struct restore_source *source);

#endif
