/* Plans a session, or says why nothing fits, and starts it. */
#ifndef GPT_TRAIN_SESSION_SESSION_START_H
#define GPT_TRAIN_SESSION_SESSION_START_H

#include "session/session.h"

/* Creates the model and its plan; for a training session, the fastest plan that fits the budget.
 * Errors: GT_USAGE, GT_UNSUPPORTED, GT_NO_MEMORY, GT_NO_FIT (logged with the bytes that are short).
 */
enum gt_status session_plan(struct session *session, const struct model_options *options);
/* Allocates the arena.  If the device now has less free memory than the plan of a training session
 * needs, plans again for the memory that is left.  The session then has a new model and plan, with
 * the same samples and mathematics.  Errors: GT_NO_MEMORY, GT_NO_FIT, GT_DEVICE. */
enum gt_status session_start(struct session *session);
/* Replaces the plan by one for the budgets as they are now.  Errors: those of session_plan(),
 * GT_NO_FIT. */
enum gt_status session_replan(struct session *session, const struct model_options *options);
/* Returns GT_OK when the plan fits the budget; otherwise GT_NO_FIT, logged. */
enum gt_status session_fit_check(const struct session *session);

#endif
