/* The search: finds the fastest plan of a configuration that fits a budget.
 *
 * It tries a fixed grid of micro-batches, loss chunks and parts of the optimizer state in host
 * memory, and at each point of it bisects how much is recomputed.  These change no result but the
 * order of sums.  Leaner state formats are tried only if they are allowed and nothing else fits.  A
 * larger budget never gives a slower plan, provided that bytes fall with each block that is
 * recomputed; for a few models they rise by up to 1 % where a level ends.
 */
#ifndef GPT_TRAIN_PLAN_PLAN_SEARCH_H
#define GPT_TRAIN_PLAN_PLAN_SEARCH_H

#include "base/hostmem.h"
#include "model/model.h"
#include "plan/plan.h"
#include "plan/plan_cost.h"
#include "plan/plan_measure.h"

/* Measurements shared by searches that differ only in budget, pins and state format.  Zeroed before
 * the first. */
struct search_memo {
    struct measure_memo states[STATE_FORMATS];
};
void search_memo_close(struct search_memo *memo);

struct search_request {
    struct model_options options; /* the requested options; their choices are the first candidate */
    int64_t samples;              /* per part of an update */
    int64_t micro_batch_most;     /* the grid's largest; if it is 0 or smaller, that of `options` */
    int64_t loss_chunk_most;      /* rows of the grid's widest chunk; 0: those of `options` */
    bool pin_micro_batch, pin_recompute, pin_loss_chunk, pin_evaluate_batch; /* set by the user */
    bool pin_offload;             /* also of the blocks' inputs */
    int32_t offload_classes_most; /* that may move to host memory, the cheapest first; 0: all */
    bool resumed; /* the requested choices are kept if they fit; else those that change no bit come
                     before all others */
    bool lean_states;  /* if nothing fits, formats leaner than that of `options` are tried */
    bool lean_offered; /* leaner formats are not tried, but an alternative may suggest them */
    bool has_weights;  /* the weights come from files, which give the model's shape */
    struct lora_config lora_offered; /* adapters that an alternative may suggest; rank 0: none */
    bool fit_only;                   /* if nothing fits, the smallest plan is not needed */
    struct plan_options plan;
    struct plan_rates rates;
    struct plan_share share;  /* what the plan must fit */
    struct search_memo *memo; /* NULL: the search uses its own */
};

/* The way in which a choice differs from the request. */
enum alternative_kind {
    ALTERNATIVE_SEARCHED, /* the search's result with nothing pinned, for the budget or a part of it
                           */
    ALTERNATIVE_MICRO_BATCH, /* only the micro-batch is smaller */
    ALTERNATIVE_RECOMPUTE,   /* only more is recomputed */
    ALTERNATIVE_HOST,   /* as ALTERNATIVE_SEARCHED with a larger host_budget; nothing else fits */
    ALTERNATIVE_STATES, /* leaner states, if only they fit or they are much faster; not equivalent
                      from here on */
    ALTERNATIVE_LORA,   /* adapters instead of all weights */
    ALTERNATIVE_BLOCK_SIZE, /* from here on another context or model, so other losses */
    ALTERNATIVE_LAYERS,
    ALTERNATIVE_WIDTH, /* fewer heads of the same size */
    ALTERNATIVE_MODEL, /* fewer layers and heads */
    ALTERNATIVE_KINDS
};

/* A plan that fits, or a point of the front: options with their bytes and seconds, planned for
 * real. */
struct search_alternative {
    enum alternative_kind kind;
    bool by_host_budget; /* it needs a larger host_budget than the request has */
    bool by_allowing; /* for ALTERNATIVE_STATES: allow_lean_states finds it, as nothing else fits */
    struct model_options options;
    uint64_t arena_bytes, host_bytes;
    double seconds; /* modelled, per update, at the rates of the request */
};

struct search_result {
    struct search_alternative found;
    double seconds_request;   /* modelled, for the requested options */
    uint64_t bytes_request;   /* for the requested options; MEASURE_NEVER as in `unplaceable` */
    bool bytes_request_least; /* bytes_request is a lower bound: its tensors were not placed */
    bool request_fits;        /* a change of the requested options only makes them faster */
    int32_t candidates;       /* number measured; 1: the requested options were chosen */
    bool unplaceable; /* a tensor exceeds the device's largest allocation, so no budget would do */
    bool fits;
};

/* Returns the rows of a loss chunk: at most `most`, evenly over the rows of a micro-step, in
 * multiples of 64. */
int64_t search_chunk_even(int64_t rows, int64_t most);
#define SEARCH_CHUNKS_MAX 512 /* loss chunks in a program, unless the user set loss_chunk */

/* Runs the search.  Errors: GT_NO_FIT (not logged) when nothing fits: then `out` has the candidate
 * with the fewest bytes; GT_NO_MEMORY, and those of model_create() and plan_create(). */
enum gt_status plan_search(struct hostmem *mem, const struct search_request *request,
                           struct search_result *out);

/* Measures the smallest plan that the pins allow; MEASURE_NEVER if the device's largest allocation
 * rules out all. Errors: the same. */
enum gt_status search_bytes_least(struct hostmem *mem, const struct search_request *request,
                                  uint64_t *out);

/* Returns the next leaner state format that the options allow, or STATE_FORMATS: Muon has no 8-bit
 * momentum. */
enum state_format search_states_next(const struct model_options *options);

#define SEARCH_FRONT_MAX 24

/* Finds the Pareto front of memory against time, for any budget: those candidates, the request
 * included, for which no other is both smaller and faster.  Sorts them by bytes.  Gives at most
 * SEARCH_FRONT_MAX points, each planned for real.  Errors: the same. */
enum gt_status search_front(struct hostmem *mem, const struct search_request *request,
                            struct search_alternative out[static SEARCH_FRONT_MAX], int32_t *count);

/* Returns true when a choice trains the same model on the same samples. */
static inline bool search_alternative_equivalent(enum alternative_kind kind)
{
    return kind < ALTERNATIVE_STATES;
}

/* Return what is in host memory at a level of offload, and the last level.  Level 0 is what was
 * requested; each further level moves another quarter of the blocks, one class after the other. */
struct offload_mix search_offload_mix(const struct search_request *request, int32_t level);
int32_t search_offload_levels(const struct search_request *request);

#endif
