/* Makes a plan: asks the backend for workspaces, places persistent tensors, then each program on
 * top of them. */
#ifndef GPT_TRAIN_PLAN_PLAN_CREATE_H
#define GPT_TRAIN_PLAN_PLAN_CREATE_H

#include "plan/plan.h"
#include "plan/plan_item.h"

/* Errors: GT_NO_MEMORY; GT_NO_FIT when one tensor exceeds the largest segment (named unless
 * `quiet`); GT_USAGE on size overflow; GT_UNSUPPORTED when the backend lacks an op (named). */
enum gt_status plan_create(const void *owner, const struct graph *graph,
                           const struct plan_options *options, struct plan **out);
/* Sets the shapes and the planned addresses of an op. */
void plan_call(const struct plan *plan, int32_t program, int32_t op, struct op_call *call);

/* Returns `bytes` rounded up to the alignment, plus the guard; an empty tensor takes one unit. */
uint64_t plan_footprint(const struct plan_options *options, uint64_t bytes);

/* Collects the items of a program: its program-lifetime storages, with lives from `ranges`, and the
 * workspaces. Returns their number. */
int32_t plan_items_collect(const struct plan *plan, int32_t program,
                           const struct tensor_range *ranges, struct plan_item *items);
/* Fills live[0 .. ops - 1] (live has ops + 1 entries) and the bound, peak op and categories of
 * `out`. */
void plan_live_measure(const struct plan *plan, int32_t program, const struct plan_item *items,
                       int32_t count, uint64_t *live, struct plan_program *out);

/* Returns the name of the tensor that an op writes first, "-" when it writes none. */
const char *plan_op_target(const struct graph *graph, const struct op *op);

#endif
