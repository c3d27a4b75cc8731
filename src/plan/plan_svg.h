/* Draws the plan as a picture: the ops of an update across, addresses up, one rectangle for each
 * storage. */
#ifndef GPT_TRAIN_PLAN_PLAN_SVG_H
#define GPT_TRAIN_PLAN_PLAN_SVG_H

#include "plan/plan.h"

/* Draws the plan as SVG, with the front of memory against time (doc/plan.md).  Errors:
 * GT_NO_MEMORY, GT_IO. */
enum gt_status plan_print_svg(struct hostmem *mem, const struct plan *plan,
                              const struct plan_report_facts *facts, FILE *out);

#endif
