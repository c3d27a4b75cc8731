/* A plan as an answer: what --plan and --explain_oom print, and --compare compares. */
#ifndef GPT_TRAIN_ANSWER_ANSWER_H
#define GPT_TRAIN_ANSWER_ANSWER_H

#include "answer/plan_answer.h"
#include "session/run.h"

/* Plans the run of a configuration, which it completes, without the data if need be.  With
 * explain_oom, first prints what the message means, and plans for its memory.  `run` was zeroed;
 * the caller closes it with answer_close(), whatever the result.  Errors: those of run_resolve(),
 * run_open() and run_plan(). */
enum gt_status answer_open(struct run *run, struct hostmem *mem, struct config *config);
/* Sets *out to the facts of the plan; `out` points into the run, and must not move.  Errors: those
 * of session_peak_measure() and plan_answer_make(). */
enum gt_status answer_make(struct run *run, struct plan_answer *out);
void answer_close(struct run *run, enum gt_status status);

/* Prints the plan of a configuration to standard output in the form that it names, or its program.
 * Errors: as above; GT_NO_FIT, logged, if the plan does not fit. */
enum gt_status answer_run(struct hostmem *mem, struct config *config);

#endif
