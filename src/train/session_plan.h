/* The plan of a session: the options that follow from a configuration and a checkpoint, and the fastest plan with them
 * that fits the budget.
 */
#ifndef GPT_TRAIN_TRAIN_SESSION_PLAN_H
#define GPT_TRAIN_TRAIN_SESSION_PLAN_H

#include "train/session.h"

/* Sets the shape of the model that the configuration describes; `vocab_size` is used if the configuration leaves it
 * open. */
void session_model_config(const struct config *config, int64_t vocab_size, struct model_config *out);
/* Choices stored in a checkpoint; a field of `plan` that is 0 is not chosen yet. */
struct session_choices {
    struct plan_choice plan;
    bool states_chosen; /* the checkpoint's states have the format `states` */
    enum state_format states;
};

/* Returns the format that the configuration names, which must not be auto. */
enum state_format session_state_format(const struct config *config);

/* Sets how the samples of an update are split into micro-steps, and the sizes of the other programs, for this session's
 * device and dtype.  A key that the configuration sets takes precedence over `choices`, which take precedence over the
 * default. */
void session_train_options(const struct session *session, const struct session_choices *choices,
                           const struct model_config *model, struct model_options *out);

/* Creates the model and its plan; for a training session, the fastest plan that fits the budget.  Errors: GT_USAGE,
 * GT_UNSUPPORTED, GT_NO_MEMORY, GT_NO_FIT (logged with the bytes that are short). */
enum gt_status session_plan(struct session *session, const struct model_options *options);
/* Plans a session that only evaluates (and samples), with an evaluation batch that fits. */
enum gt_status session_plan_evaluation(struct session *session, const struct model_options *options);
#endif
