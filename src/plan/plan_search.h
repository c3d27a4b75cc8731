/* The search: the fastest plan of a configuration that fits a budget.
 *
 * What may vary, unless leaner state formats are allowed and nothing else fits, changes no result but the order of sums: the micro-batch (any size, the remainder in a micro-step of its
 * own), what the backward pass computes again (per block, in two groups), and the rows of a loss chunk.  Candidates and
 * their estimated times do not depend on the budget; the first that fits is found, and of it and of those that an estimate
 * may have put behind it by its error, the fastest is taken, so that a larger budget never gives a slower plan.  Bytes are estimated from few real plans, to skip what is hopeless, and the choice is planned for real.
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

#define SEARCH_CHUNKS_MAX 3

/* A quantity of the micro-batch: at_zero + slope * micro_batch. */
struct search_line {
    double at_zero, slope;
};

/* What planning a candidate told. */
struct search_tried {
    struct plan_choice choice;
    bool exact; /* bytes and seconds are those of a real plan; else `bytes` is a lower bound */
    uint64_t bytes;
    double seconds; /* 0: not known */
};
#define SEARCH_TRIED_MAX 128

/* What searches share that differ in budget and pins only: zeroed before the first of them. */
struct search_states_memo {
    bool known[SEARCH_CHUNKS_MAX][RECOMPUTE_LEVELS];
    struct search_line bytes[SEARCH_CHUNKS_MAX][RECOMPUTE_LEVELS];   /* of the arena */
    struct search_line seconds[SEARCH_CHUNKS_MAX][RECOMPUTE_LEVELS]; /* of a micro-step */
    double update_seconds;
    struct search_tried tried[SEARCH_TRIED_MAX];
    int32_t tried_count;
    int32_t asked_evaluate_batch; /* what the two figures below belong to; 0 = not known yet */
    uint64_t asked_bytes;
    double asked_seconds;
};

struct search_memo {
    struct search_states_memo states[STATE_FORMATS];
};

struct search_request {
    struct model_options options; /* what is asked for; its choices are the first candidate */
    int64_t samples;              /* per update */
    bool pin_micro_batch, pin_recompute, pin_loss_chunk, pin_evaluate_batch; /* the user chose these */
    bool lean_states;  /* where nothing fits, leaner state formats than that of `options` may follow */
    bool lean_offered; /* they may not, but a choice may name them */
    struct plan_options plan;
    struct plan_rates rates;
    uint64_t budget_bytes;    /* for the arena */
    struct search_memo *memo; /* NULL: the search keeps one of its own */
};

struct search_result {
    struct model_options options; /* the choice */
    uint64_t arena_bytes;
    double seconds;           /* modelled, per update, op by op */
    double seconds_request;   /* modelled, of what was asked for */
    uint64_t bytes_request;   /* of what was asked for */
    bool bytes_request_least; /* it needs at least that: it was not planned to the end */
    int32_t candidates;       /* that were considered */
    bool arena_least;         /* arena_bytes is a bound: the options were not planned, as that would take too long */
    bool unplaceable;         /* a tensor of the options exceeds the device's largest allocation: no budget would do */
    bool fits;
};

/* A plan that fits, or a point of the front: options with what they need and take, planned for real. */
enum choice_kind {
    CHOICE_SEARCHED,    /* whatever the search finds with nothing pinned, for the budget or a part of it */
    CHOICE_MICRO_BATCH, /* only the micro-batch is smaller */
    CHOICE_RECOMPUTE,   /* only more is computed again */
    CHOICE_STATES,      /* leaner states, where they alone fit or are much faster: from here on not equivalent */
    CHOICE_BLOCK_SIZE,  /* from here on another context or model, so other losses */
    CHOICE_LAYERS,
    CHOICE_WIDTH, /* fewer heads of the same size */
    CHOICE_MODEL, /* fewer layers and heads */
    CHOICE_KINDS
};

struct search_choice {
    enum choice_kind kind;
    bool by_allowing; /* of CHOICE_STATES: allow_lean_states finds it, as nothing else fits */
    struct model_options options;
    uint64_t arena_bytes;
    double seconds; /* modelled, per update, at the rates of the request */
};

#define SEARCH_CHOICES_MAX 3
#define SEARCH_LEAN_SHARE 0.9
#define SEARCH_FRONT_MAX 24

/* Sets the micro-batch of `options` and what follows from it. */
void search_micro_batch_set(struct model_options *options, int64_t samples, int64_t micro_batch);

#define SEARCH_BYTES_NEVER UINT64_MAX /* arena_bytes of a choice that no budget makes fit */
/* Errors: GT_NO_FIT (not logged) when nothing does: then `out` holds the candidate with the fewest bytes; GT_NO_MEMORY, and those of
 * model_create() and plan_create(). */
enum gt_status plan_search(struct hostmem *mem, const struct search_request *request, struct search_result *out);

/* The options with the fewest bytes that the pinned choices allow.  False when no plan of theirs can fit the budget, by a
 * bound that needs no plan. */
bool search_least(const struct search_request *request, struct model_options *out);

/* Modelled seconds of an update: all its micro-steps, and the update program. */
double search_update_seconds(const struct model *model, const struct plan_rates *rates);

/* Plans options for real: bytes of the arena and the modelled seconds of an update; SEARCH_BYTES_NEVER where a tensor
 * exceeds the device's largest allocation.  Errors: those of model_create() and plan_create(). */
enum gt_status search_options_plan(struct hostmem *mem, const struct plan_options *plan, const struct plan_rates *rates,
                                   struct search_choice *choice);

/* At most SEARCH_CHOICES_MAX choices that fit the budget, each planned for real and all different: first those that change
 * no result but the order of sums, pinned keys let go where they must, by their times; then, where they are offered, leaner
 * states that alone fit or take at most SEARCH_LEAN_SHARE of the time; then, only where nothing fits with the pins, and with
 * them kept, those that train something else.
 * Errors: GT_NO_MEMORY, and those of model_create() and plan_create(). */
enum gt_status search_choices(struct hostmem *mem, const struct search_request *request,
                              struct search_choice out[static SEARCH_CHOICES_MAX], int32_t *count);

/* The front of memory against time, whatever the budget: candidates of the request and the request itself, of which no
 * other one is both smaller and faster, by growing bytes; at most SEARCH_FRONT_MAX, planned for real.  Errors: the same. */
enum gt_status search_front(struct hostmem *mem, const struct search_request *request,
                            struct search_choice out[static SEARCH_FRONT_MAX], int32_t *count);

/* Whether a choice trains the same model on the same samples. */
bool search_choice_equivalent(enum choice_kind kind);
/* "search", "micro_batch", "recompute", "states", "block_size", "n_layer", "n_head", "model". */
const char *search_choice_name(enum choice_kind kind);
#define SEARCH_CHANGES_MAX 256
/* The changes of a choice, and the flag that it needs. */
char *search_choice_text(char text[static SEARCH_CHANGES_MAX], const struct search_choice *choice,
                         const struct model_options *asked);
/* What of `options` differs from `asked`, as keys: "micro_batch 8, recompute mlp x7 + layernorm x5". */
char *search_changes_text(char text[static SEARCH_CHANGES_MAX], const struct model_options *options,
                          const struct model_options *asked);

/* "micro-batch 8 of 64, mlp recomputed in 7 of 12 blocks (gelu in the others), loss in chunks of 512 rows" into `text`. */
char *search_options_text(char text[static 192], const struct model_options *options);
/* A memory_budget of at least so many bytes, as it can be typed: "84MiB", "2.01GiB". */
char *search_budget_text(char text[static 24], uint64_t bytes);

#endif
