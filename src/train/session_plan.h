/* The plan of a session: the options that a configuration and a checkpoint ask for, and the fastest plan of them that fits
 * the budget.
 */
#ifndef GPT_TRAIN_TRAIN_SESSION_PLAN_H
#define GPT_TRAIN_TRAIN_SESSION_PLAN_H

#include "train/session.h"

/* The shape of the model that the configuration asks for; `vocab_size` where the configuration leaves it open. */
void session_model_config(const struct config *config, int64_t vocab_size, struct model_config *out);
/* What a checkpoint says of how the run goes on; a field of the plan that is 0 is not chosen yet. */
struct session_choices {
    struct plan_choice plan;
    bool states_chosen; /* a checkpoint's states are in this format */
    enum state_format states;
};

/* The format that the configuration names; not for auto. */
enum state_format session_state_format(const struct config *config);

/* How the samples of an update are cut into micro-steps, and the sizes of the other programs, on this session's device
 * and in its dtype.  A key that the configuration sets wins over `choices`, which win over the default. */
void session_train_options(const struct session *session, const struct session_choices *choices,
                           const struct model_config *model, struct model_options *out);

/* Makes the model and its plan; of a training session, the fastest plan that fits the budget.
 * Errors: GT_USAGE, GT_UNSUPPORTED, GT_NO_MEMORY, GT_NO_FIT (logged with the bytes that are short). */
enum gt_status session_plan(struct session *session, const struct model_options *options);
/* The same for a session that only evaluates (and samples): its batch is made to fit. */
enum gt_status session_plan_evaluation(struct session *session, const struct model_options *options);
#endif
