/* Measures candidates: the bytes that a choice needs at least, and its modelled time, without
 * placing a tensor.
 *
 * Graphs are built as for a run, but in pieces: the micro-steps of a choice, an evaluation, and the
 * rest of an update.  A piece is built once for all candidates that share it: where the optimizer
 * state lives, for example, changes nothing in a micro-step.  The bytes of a candidate follow from
 * those of its pieces, and equal plan_create()'s lower bound of the whole.
 */
#ifndef GPT_TRAIN_PLAN_PLAN_MEASURE_H
#define GPT_TRAIN_PLAN_PLAN_MEASURE_H

#include "base/hostmem.h"
#include "model/model.h"
#include "plan/plan.h"
#include "plan/plan_cost.h"

/* Bytes of what no budget makes fit: a tensor exceeds the largest allocation. */
#define MEASURE_NEVER UINT64_MAX

struct measurement {
    uint64_t bytes;      /* of the arena on the device: no plan needs less */
    uint64_t host_bytes; /* of the one in host memory, exactly */
    double seconds;      /* of an update, in which all micro-steps of a size take equally long */
};

/* What was measured and planned so far for one configuration and state format.  Zeroed before its
 * first use. */
struct measure_memo {
    struct measured_piece *parts;
    struct measured_plan *plans;
    int32_t part_count, plan_count;
};

struct measure {
    struct hostmem *mem;
    const struct model_options *options; /* of the request; their choice does not matter */
    const struct plan_options *plan;
    const struct plan_rates *rates;
    int64_t samples; /* of a part of an update */
    struct measure_memo *memo;
};

/* Sets the micro-batch of `options` and the fields that follow from it. */
void measure_micro_batch_set(struct model_options *options, int64_t samples, int64_t micro_batch);

/* Measures a choice.  Errors: those of model_create() and plan_create(), except GT_NO_FIT. */
enum gt_status measure_choice(const struct measure *measure, const struct plan_choice *choice,
                              struct measurement *out);

/* Measures the update alone.  No plan of a choice with the same offload and micro-steps of the same
 * size has fewer bytes or takes less time.  Errors: the same. */
enum gt_status measure_update(const struct measure *measure, const struct plan_choice *choice,
                              struct measurement *out);

/* Plans a choice and places every tensor.  Gives the bytes of the plan.  Errors: the same. */
enum gt_status measure_place(const struct measure *measure, const struct plan_choice *choice,
                             struct measurement *out);
/* Returns what measure_place() gave for a choice, or NULL. */
const struct measurement *measure_placed(const struct measure *measure,
                                         const struct plan_choice *choice);

/* Plans options.  Gives the bytes of the plan, but no seconds.  Errors: the same. */
enum gt_status measure_options(struct hostmem *mem, const struct plan_options *plan,
                               const struct model_options *options, struct measurement *out);

/* Returns the number of elements whose states a rank holds. */
int64_t measure_rank_elements(const struct model *model, int32_t rank);
/* Sets the rank of `options` to the one with the most elements, whose plan is the largest.  Errors:
 * those of model_create(). */
enum gt_status measure_rank_set(struct hostmem *mem, struct model_options *options);

/* Returns the seconds of the programs that an update runs. */
double measure_update_seconds(const struct model *model, const struct plan_rates *rates,
                              plan_seconds_fn *seconds);

/* Frees what the memo has. */
void measure_memo_close(struct measure_memo *memo);

#endif
