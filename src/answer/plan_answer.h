/* The facts of the answer to --plan. */
#ifndef GPT_TRAIN_ANSWER_PLAN_ANSWER_H
#define GPT_TRAIN_ANSWER_PLAN_ANSWER_H

#include "plan/plan_alternatives.h"
#include "session/session_plan.h"

#define PLAN_CONFIGURATION_MAX 256
#define PLAN_NEEDLESS_MAX 256

/* The facts of a plan, and room for what they point to. */
struct plan_answer {
    struct plan_report_facts facts;
    char configuration[PLAN_CONFIGURATION_MAX];
    char needless[PLAN_NEEDLESS_MAX];
    char pins[SESSION_PINS_TEXT_MAX];
    struct search_alternative alternatives[SEARCH_ALTERNATIVES_MAX], front[SEARCH_FRONT_MAX];
};

/* Sets *out to the configuration of a session, the forecast, alternatives if the plan does not fit,
 * and the front of memory against time if config->plan shows it.  Call it after session_plan() and
 * before session_start(); `out` must not move while its facts are used, and borrows from the
 * session.  Errors: GT_NO_MEMORY. */
enum gt_status plan_answer_make(struct session *session, const struct forecast *forecast,
                                struct plan_answer *out);

#endif
