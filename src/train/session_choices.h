/* Alternatives for a run that was refused for lack of memory, and the batch that fits a session that only evaluates. */
#ifndef GPT_TRAIN_TRAIN_SESSION_CHOICES_H
#define GPT_TRAIN_TRAIN_SESSION_CHOICES_H

#include "train/session.h"

/* To be called after a refused search.  Logs up to three plans that do fit as notes, with the keys that change and
 * their modelled times on this device, which is measured for that in a small arena.  Afterwards the session can only be
 * closed.  A failure here is not an error: the refusal has already been logged. */
void session_choices_log(struct session *session);

/* Makes the evaluation batch of `options`, which train nothing, as large as the budget allows, and shrinks the loss
 * chunk if not even one sequence fits.  Keys that the user set stay.  Errors: those of search_options_plan(). */
enum gt_status session_evaluation_fit(const struct session *session, struct model_options *options);

#endif
