/* The search: the fastest plan of a configuration that fits a budget.
 *
 * What may vary changes no result but the order of sums: the micro-batch (any size, the remainder in a micro-step of its
 * own), what the backward pass computes again (per block, in two groups), and the rows of a loss chunk.  Candidates and
 * their modelled times do not depend on the budget, and the first that fits is taken, so that a larger budget never gives
 * a slower plan.  Bytes are estimated from few real plans, to skip what is hopeless, and the choice is planned for real.
 */
#ifndef GPT_TRAIN_PLAN_PLAN_SEARCH_H
#define GPT_TRAIN_PLAN_PLAN_SEARCH_H

#include <stdbool.h>
#include <stdint.h>

#include "base/hostmem.h"
#include "base/status.h"
#include "model/model.h"
#include "plan/plan.h"
#include "plan/plan_cost.h"

struct search_request {
    struct model_options options; /* what is asked for; its choices are the first candidate */
    int64_t samples;              /* per update */
    bool pin_micro_batch, pin_recompute, pin_loss_chunk, pin_evaluate_batch; /* the user chose these */
    struct plan_options plan;
    struct plan_rates rates;
    uint64_t budget_bytes; /* for the arena */
};

struct search_result {
    struct model_options options; /* the choice */
    uint64_t arena_bytes;
    double seconds;           /* modelled, per update */
    double seconds_request;   /* modelled, of what was asked for */
    uint64_t bytes_request;   /* of what was asked for */
    bool bytes_request_least; /* it needs at least that: it was not planned to the end */
    int32_t candidates;       /* that were considered */
    bool fits;
};

/* Sets the micro-batch of `options` and what follows from it. */
void search_micro_batch_set(struct model_options *options, int64_t samples, int64_t micro_batch);

/* Errors: GT_NO_FIT when nothing does: then `out` holds the candidate with the fewest bytes; GT_NO_MEMORY, and those of
 * model_create() and plan_create(). */
enum gt_status plan_search(struct hostmem *mem, const struct search_request *request, struct search_result *out);

/* "micro-batch 8 of 64, mlp recomputed in 7 of 12 blocks (gelu in the others), loss in chunks of 512 rows" into `text`. */
char *search_options_text(char text[static 192], const struct model_options *options);
/* "none", "gelu", "layernorm", "mlp", "full". */
const char *recompute_level_name(enum recompute_level level);

#endif
