/* What to do instead, said when a run is refused for its memory; and the least that an evaluation needs. */
#ifndef GPT_TRAIN_TRAIN_SESSION_CHOICES_H
#define GPT_TRAIN_TRAIN_SESSION_CHOICES_H

#include "train/session.h"

/* After a refused search: up to three plans that do fit, as notes, with the keys that change and their modelled times on this
 * device, which is measured for that in a small arena of its own.  The session can only be closed then.  What fails here
 * is not an error: the refusal has been said. */
void session_choices_log(struct session *session);

/* Makes the evaluation batch of `options`, which train nothing, as large as the budget allows, and the loss chunk small where
 * even one sequence does not fit; keys that are set stay.  Errors: those of search_options_plan(). */
enum gt_status session_evaluation_fit(const struct session *session, struct model_options *options);

#endif
