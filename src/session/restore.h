/* Decides where a run begins: from scratch, from its own checkpoint, or from a folder of weights.
 *
 * Connects checkpoints (io/) to a session: the names and shapes of the model's parameters to the tensors of the
 * executor.
 */
#ifndef GPT_TRAIN_SESSION_RESTORE_H
#define GPT_TRAIN_SESSION_RESTORE_H

#include "base/hostmem.h"
#include "config/config.h"
#include "data/mixture.h"
#include "io/checkpoint.h"
#include "session/session.h"

/* Dynamic loss scaling for float16 (schedule.c).  The loss is multiplied by a scale, so that small gradients do not
 * vanish, and the gradients are divided by it before they are used.
 *
 * Source: PyTorch torch.amp.GradScaler, whose defaults these are: the scale starts at 2^16; an update whose gradients
 * are not finite is skipped and halves the scale; 2,000 good updates in a row double it.  Other dtypes keep the scale
 * 1. */
#define LOSS_SCALE_FIRST 65536.0
#define LOSS_SCALE_GROWTH 2.0
#define LOSS_SCALE_BACKOFF 0.5
#define LOSS_SCALE_GROWTH_INTERVAL 2000

struct loss_scaler {
    bool dynamic;           /* float16 */
    double scale;           /* a power of two within fp32's range */
    int64_t growth_tracker; /* good updates since the scale changed: GradScaler's _growth_tracker */
};

void loss_scaler_init(struct loss_scaler *scaler, enum dtype dtype);
/* Adjusts the scale after an update, skipped or not.  The scale never leaves fp32's normal range. */
void loss_scaler_update(struct loss_scaler *scaler, bool found_inf);

/* Returns {"scale": 65536.0, "growth_tracker": 0} for the checkpoint; NULL without memory. */
json_t *loss_scaler_to_json(const struct loss_scaler *scaler);
/* Restores the state from a checkpoint if scaling is dynamic.  `source` names the file in errors.  Errors: GT_DATA. */
enum gt_status loss_scaler_from_json(struct loss_scaler *scaler, const json_t *object, const char *source);

/* The run's counters and choices: the part of a checkpoint that is neither tensors nor configuration. */
struct run_state {
    int64_t iter;         /* the next iteration */
    int64_t adam_step;    /* updates applied */
    int64_t evaluations;  /* done so far */
    int64_t samples_seen; /* sequences trained on */
    int64_t skipped;      /* updates skipped */
    int64_t length;       /* updates that `hours` allows, once ten were timed; 0: not known */
    double best_val_loss; /* infinity = none yet */
    bool evaluated;       /* iteration `iter` has been evaluated already */
    struct session_choices choices;
    struct loss_scaler loss_scaler;
};

/* The source of the weights; `checkpoint` is NULL for scratch. */
struct restore_source {
    struct checkpoint *checkpoint;
    char base[FILE_PATH_MAX]; /* the name of the model that new adapters, or those of `checkpoint`, are made for */
    bool resume;              /* the optimizer states are restored too */
    bool own;                 /* `checkpoint` is out_dir's last one: the run continues in place */
    bool branch; /* `checkpoint` is an older one kept in out_dir: the later ones now belong to an earlier run */
    const char *download; /* the name of a model whose plan did without its weights, borrowed; NULL otherwise */
    int32_t window;       /* of hf_config_rest, where a plan has read config.json alone */
    bool convert_states;  /* the stored states have another format than the run's */
};

/* Decides where the run begins.  Settles `config`: a checkpoint fills the keys that this invocation did not set, and
 * the data or the weights decide keys that were left open.  Describes the model in `model`.  The
 * tokenizer of the `mixture` gives the vocabulary of a new model.  Errors: GT_DATA, GT_IO, GT_USAGE, GT_UNSUPPORTED. */
enum gt_status restore_open(struct hostmem *mem, struct config *config, const struct mixture *mixture,
                            struct restore_source *source, struct run_state *state, struct model_config *model);
/* Opens only the weights of out_dir or init_from, for programs that do not train. */
enum gt_status restore_open_weights(struct hostmem *mem, const struct config *config, struct restore_source *source);
/* Refuses data whose tokenizer is not that of the weights: the one that the checkpoint or its folder names, else one
 * with more tokens than the model.  `data` may be NULL; `folder` is the dataset's.  Errors: GT_DATA and those of
 * tokenizer_import(). */
enum gt_status restore_tokenizer_check(struct hostmem *mem, const struct config *config,
                                       const struct restore_source *source, const struct tokenizer *data,
                                       const char *folder);
/* Sets tokenizer->has_template if the model's folder has a chat template or one of the data sets is of conversations.
 * `tokenizer` may be NULL.  Errors: GT_DATA, GT_IO, GT_NO_MEMORY. */
enum gt_status restore_template_find(const struct config *config, const struct restore_source *source,
                                     const struct mixture *mixture, struct tokenizer *tokenizer);
void restore_close(struct restore_source *source);
/* Refuses contexts of so many tokens, which `key` asks for, where hf_config_rest.window forbids them.  Errors:
 * GT_USAGE. */
enum gt_status restore_window_check(const char *key, int64_t tokens, int32_t window, const char *source);

/* Sets the initial weights of what is trained, a pure function of the seed, and zeroes the moments. */
enum gt_status session_weights_init(struct session *session, uint64_t seed);
/* Fills the weights (and moments, and Adam's bias corrections) on the device with initial values from `seed`, or with
 * the checkpoint's. */
enum gt_status restore_weights(struct session *session, const struct restore_source *source, uint64_t seed);

/* Creates the array that describes the model's parameters to io/, which the caller frees.  Errors: GT_NO_MEMORY. */
enum gt_status restore_tensors(struct session *session, struct checkpoint_tensor **out);

/* The context of restore_part_write().  The caller frees `exponents`. */
struct restore_parts {
    struct session *session;
    int8_t *exponents; /* of the 8-bit moments being converted: [2, blocks] */
};

/* Where elements of a part of a parameter are: the rank, which may be this one, and the first one's place there. */
struct restore_place {
    int32_t owner;
    int64_t first, count;
};
/* Returns the place of the elements from `first` on, at most `count`, that are together. */
struct restore_place restore_place(const struct session *session, enum checkpoint_part part, int32_t index,
                                   int64_t first, int64_t count);
/* Returns the tensor of a part that is here. */
int32_t restore_part_tensor(const struct session *session, enum checkpoint_part part, int32_t index);
/* A checkpoint_write_fn; the context is a struct restore_parts.  Takes the elements that belong here. */
enum gt_status restore_part_write(void *context, enum checkpoint_part part, int32_t index, size_t first, size_t count,
                                  const void *values, enum dtype dtype);

/* ---- comparing a resumed run with the run that wrote its checkpoint (resume_check.c) ----
 *
 * Each function returns GT_OK if nothing differs.  It logs differences and continues; with strict_resume it refuses
 * them. */

/* Passes the algorithms in a checkpoint to the device, then reads its description, which may depend on them.  To be
 * called before the arena is taken.  Errors: GT_DATA, the device's. */
enum gt_status resume_algorithms_choose(struct session *session, const struct checkpoint *checkpoint);

/* Reports differences in kernels and plan, which change the last bits of the results; with strict_resume refuses them.
 * Errors: GT_USAGE. */
enum gt_status resume_check_bits(const struct session *session, const struct restore_source *source);

/* Reports changed keys on which results depend.  Keys that the checkpoint lacks pass.  Errors: GT_USAGE. */
enum gt_status resume_check_keys(const struct config *config, const struct restore_source *source);

/* The digests of the splits, by enum token_split; see feed_digest(). */
#define FEED_DIGEST_MAX 192
struct run_data {
    char text[2][FEED_DIGEST_MAX];
};

/* Reports data that differ from the checkpoint's, so that the batches differ.  A checkpoint that has no digests passes.
 * Errors: GT_USAGE. */
enum gt_status resume_check_data(const struct config *config, const struct restore_source *source,
                                 const struct run_data *data);

/* Returns everything that decides the last bits of a run, for its record: the plan's choices, the backend and its
 * kernels.  Returns NULL without memory. */
json_t *resume_plan_object(const struct session *session);

#endif
