/* The answer to --plan: the plan of a session as text, JSON or a picture, with what the configuration and the forecast say
 * of it, the choices that fit where it does not, and the front of memory against time where it is asked for. */
#ifndef GPT_TRAIN_TRAIN_PLAN_ANSWER_H
#define GPT_TRAIN_TRAIN_PLAN_ANSWER_H

#include <stdio.h>

#include "base/status.h"
#include "train/forecast.h"
#include "train/session.h"

/* Writes it in the form that the configuration asks for.  Needs session_plan() and a forecast; session_start() was not
 * called.  Errors: GT_NO_FIT when the plan does not fit its budget, after it was written and with one line; GT_IO,
 * GT_NO_MEMORY. */
enum gt_status plan_answer(const struct session *session, const struct forecast *forecast, FILE *out);

#endif
