/* Prints the plan as JSON, for programs; the schema is in doc/plan.md. */
#ifndef GPT_TRAIN_PLAN_PLAN_JSON_H
#define GPT_TRAIN_PLAN_PLAN_JSON_H

#include "plan/plan.h"

enum gt_status plan_print_json(const struct plan *plan, const struct plan_report_facts *facts,
                               FILE *out);

#endif
