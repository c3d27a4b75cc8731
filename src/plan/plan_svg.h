/* Shared by the files that draw the plan as SVG. */
#ifndef GPT_TRAIN_PLAN_PLAN_SVG_H
#define GPT_TRAIN_PLAN_PLAN_SVG_H

#include <stdint.h>
#include <stdio.h>

#include "base/svg.h"
#include "model/graph.h"
#include "plan/plan.h"

#define SVG_BUDGET "#d62728"

/* A rectangle of the page. */
struct svg_panel {
    double left, top, width, height;
};

/* Returns the bytes that the arena may take according to the facts; 0 = unknown. */
uint64_t svg_budget(const struct plan *plan, const struct plan_report_facts *facts);

/* Draws the front of memory against time. */
void svg_front_draw(const struct plan *plan, const struct plan_report_facts *facts, const struct svg_panel *panel,
                    FILE *out);

#endif
