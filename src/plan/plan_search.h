/* The search: finds the fastest plan of a configuration that fits a budget.
 *
 * It varies the micro-batch (any size, the remainder in a micro-step of its own), the recompute level (the number of
 * blocks at each), the rows of a loss chunk, and the part of the optimizer state that lives in host memory.  These
 * change no result but the order of sums.  Leaner state formats are tried only if they are allowed and nothing else
 * fits.
 *
 * Candidates, their times and their bytes do not depend on the budget, and the first that fits, in the order of their
 * times, is chosen.  So a larger budget never gives a slower plan.  In a deep model, where thousands of mixes are
 * nearly as fast, the search may pass over some of them after plans beyond the budget; then the choice is slower by
 * less than the time that a 64th of the budget saves.
 */
#ifndef GPT_TRAIN_PLAN_PLAN_SEARCH_H
#define GPT_TRAIN_PLAN_PLAN_SEARCH_H

#include "base/hostmem.h"
#include "model/model.h"
#include "plan/plan.h"
#include "plan/plan_cost.h"

struct search_states_memo;

/* Results shared by searches that differ only in budget, pins and state format.  Zeroed before the first of them. */
struct search_memo {
    struct search_states_memo *states[STATE_FORMATS];
};
void search_memo_close(struct search_memo *memo);

struct search_request {
    struct model_options options; /* the requested options; their choices are the first candidate */
    int64_t samples;              /* per part of an update */
    bool pin_micro_batch, pin_recompute, pin_loss_chunk, pin_evaluate_batch; /* set by the user */
    bool pin_offload;                                                        /* also of the blocks' inputs */
    bool resumed;      /* the requested choices, but offload, come before all others */
    bool lean_states;  /* if nothing fits, formats leaner than that of `options` are tried */
    bool lean_offered; /* leaner formats are not tried, but a choice may suggest them */
    bool fit_only;     /* a refusal needs no smallest plan */
    struct plan_options plan;
    struct plan_rates rates;
    uint64_t budget_bytes;    /* for the arena */
    uint64_t host_budget;     /* for the arena in host memory */
    struct search_memo *memo; /* NULL: the search uses its own */
};

/* The way in which a choice differs from the request. */
enum choice_kind {
    CHOICE_SEARCHED,    /* the search's result with nothing pinned, for the budget or a part of it */
    CHOICE_MICRO_BATCH, /* only the micro-batch is smaller */
    CHOICE_RECOMPUTE,   /* only more is recomputed */
    CHOICE_HOST,        /* as CHOICE_SEARCHED with a larger host_budget; nothing else fits */
    CHOICE_STATES,      /* leaner states, if only they fit or they are much faster; not equivalent from here on */
    CHOICE_BLOCK_SIZE,  /* from here on another context or model, so other losses */
    CHOICE_LAYERS,
    CHOICE_WIDTH, /* fewer heads of the same size */
    CHOICE_MODEL, /* fewer layers and heads */
    CHOICE_KINDS
};

/* A plan that fits, or a point of the front: options with their bytes and seconds, planned for real. */
struct search_choice {
    enum choice_kind kind;
    bool by_allowing; /* for CHOICE_STATES: allow_lean_states finds it, as nothing else fits */
    struct model_options options;
    uint64_t arena_bytes, host_bytes;
    double seconds; /* modelled, per update, at the rates of the request */
};

struct search_result {
    struct search_choice found;
    double seconds_request;   /* modelled, for the requested options */
    uint64_t bytes_request;   /* for the requested options */
    bool bytes_request_least; /* bytes_request is a lower bound: that plan was not completed */
    int32_t candidates;       /* number considered */
    bool arena_least;         /* found.arena_bytes is a lower bound: planning the options would take too long */
    bool unplaceable;         /* a tensor exceeds the device's largest allocation, so no budget would do */
    bool fits;
};

#define SEARCH_CHOICES_MAX 3
#define SEARCH_LEAN_SHARE 0.9
#define SEARCH_FRONT_MAX 24

/* Sets the micro-batch of `options` and the fields that follow from it. */
void search_micro_batch_set(struct model_options *options, int64_t samples, int64_t micro_batch);

#define SEARCH_BYTES_NEVER UINT64_MAX /* arena_bytes of a choice that no budget makes fit */
/* Runs the search.  Errors: GT_NO_FIT (not logged) when nothing fits: then `out` has the candidate with the fewest
 * bytes; GT_NO_MEMORY, and those of model_create() and plan_create(). */
enum gt_status plan_search(struct hostmem *mem, const struct search_request *request, struct search_result *out);

/* Computes a lower bound of the smallest plan that the pins allow; SEARCH_BYTES_NEVER if the device's largest
 * allocation rules out all.  Errors: the same. */
enum gt_status search_bytes_least(struct hostmem *mem, const struct search_request *request, uint64_t *out);

/* Returns the next leaner state format that the options allow, or STATE_FORMATS: Muon has no 8-bit momentum. */
enum state_format search_states_next(const struct model_options *options);

/* Returns the modelled seconds of an update: all its micro-steps, and the update program.  The search compares those of
 * plan_cost_blocks(); a forecast is made of makespans. */
double search_update_seconds(const struct model *model, const struct plan_rates *rates, plan_seconds_fn *seconds);

/* Plans the options of `choice` for real: sets the bytes of the arena and the modelled seconds of an update.  The bytes
 * are SEARCH_BYTES_NEVER if a tensor exceeds the device's largest allocation.  Errors: those of model_create() and
 * plan_create(). */
enum gt_status search_options_plan(struct hostmem *mem, const struct plan_options *plan, const struct plan_rates *rates,
                                   struct search_choice *choice);

/* Finds up to SEARCH_CHOICES_MAX different choices that fit the budget, each planned for real. First, by their times,
 * choices that change no result but the order of sums, unpinning keys if necessary.  Then, if offered, leaner states,
 * if only they fit or they take at most SEARCH_LEAN_SHARE of the time.  Then, only if nothing fits with the pins, and
 * with the pins kept, choices that train something else.  Errors: GT_NO_MEMORY, and those of model_create() and
 * plan_create(). */
enum gt_status search_choices(struct hostmem *mem, const struct search_request *request,
                              struct search_choice out[static SEARCH_CHOICES_MAX], int32_t *count);

/* Finds the front of memory against time, for any budget: candidates of the request and the request itself, such that
 * no other one is both smaller and faster, by growing bytes.  At most SEARCH_FRONT_MAX points, planned for real.
 * Errors: the same. */
enum gt_status search_front(struct hostmem *mem, const struct search_request *request,
                            struct search_choice out[static SEARCH_FRONT_MAX], int32_t *count);

/* Returns true when a choice trains the same model on the same samples. */
static inline bool search_choice_equivalent(enum choice_kind kind)
{
    return kind < CHOICE_STATES;
}
/* "search", "micro_batch", "recompute", "host_budget", "states", "block_size", "n_layer", "n_head", "model". */
const char *search_choice_name(enum choice_kind kind);
#define SEARCH_CHANGES_MAX 256
/* Writes the changes of a choice, and the flag that it needs. */
char *search_choice_text(char text[static SEARCH_CHANGES_MAX], const struct search_choice *choice,
                         const struct model_options *asked);
/* Writes the keys of `options` that differ from `asked`: "micro_batch 8, recompute mlp x7 + layernorm x5". */
char *search_changes_text(char text[static SEARCH_CHANGES_MAX], const struct model_options *options,
                          const struct model_options *asked);

/* Writes the options in words: "micro-batch 8, recompute mlp in 7 of 12 blocks, gelu in the others, loss in chunks of
 * 512 rows". */
#define SEARCH_OPTIONS_TEXT_MAX 384
char *search_options_text(char text[static SEARCH_OPTIONS_TEXT_MAX], const struct model_options *options);
/* Writes a memory_budget of at least `bytes` as the user can type it: "84MiB", "2.01GiB". */
char *search_budget_text(char text[static 24], uint64_t bytes);

#endif
