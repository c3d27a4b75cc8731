/* The answer to --plan: prints the plan of a session as text, JSON or a picture, together with the configuration and
 * the forecast.  If the plan does not fit, adds choices that do; on request, adds the front of memory against time. */
#ifndef GPT_TRAIN_TRAIN_PLAN_ANSWER_H
#define GPT_TRAIN_TRAIN_PLAN_ANSWER_H

#include <stdio.h>

#include "base/status.h"
#include "train/forecast.h"
#include "train/session.h"

/* Writes the answer in the form that the configuration asks for.  Needs session_plan() and a forecast; session_start()
 * must not have been called.  Errors: GT_NO_FIT when the plan does not fit its budget, after it was written and with
 * one line; GT_IO, GT_NO_MEMORY. */
enum gt_status plan_answer(const struct session *session, const struct forecast *forecast, FILE *out);

#endif
