/* The plan of a session: options, search, evaluation. */
#ifndef GPT_TRAIN_SESSION_SESSION_PLAN_H
#define GPT_TRAIN_SESSION_SESSION_PLAN_H

#include "session/session.h"

/* Sets the shape of the new model that the configuration describes, with `vocab_size` if it leaves
 * that open.  The keys that were left open become those of the model and its `arch`. */
void session_model_resolve(struct config *config, int64_t vocab_size, struct model_config *out);
#define SESSION_PINS_TEXT_MAX 512
/* After a refused search, writes the memory_budget that is enough without each key that the user
 * set, if the key makes the smallest plan larger: "84MiB without micro_batch=30, 90MiB without
 * recompute=none, 30MiB without all of these".
 * "": there is none.  Errors: those of plan_search(). */
enum gt_status session_pins_text(const struct session *session,
                                 char text[static SESSION_PINS_TEXT_MAX]);

/* Returns the format that the configuration names, which must not be auto. */
enum state_format session_state_format(const struct config *config);

/* Sets how the samples of an update are split into micro-steps, and the sizes of the other
 * programs, for this session's device and dtype.  A key that the configuration sets takes
 * precedence over `saved`, which takes precedence over the default. */
void session_train_options(const struct session *session, const struct session_saved *saved,
                           const struct model_config *model, struct model_options *out);

/* Creates the model and its plan; for a training session, the fastest plan that fits the budget.
 * Errors: GT_USAGE, GT_UNSUPPORTED, GT_NO_MEMORY, GT_NO_FIT (not logged if the search finds no
 * plan). */
enum gt_status session_plan_make(struct session *session, const struct model_options *options);
/* Plans a session that only evaluates (and samples), with an evaluation batch as large as the
 * budget allows.  If not even one sequence fits, makes the loss chunks smaller.  Never changes a
 * key that the user set. */
enum gt_status session_plan_evaluation(struct session *session,
                                       const struct model_options *options);

#endif
