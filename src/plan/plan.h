/* The memory plan: an address for every tensor of every program, before anything runs.
 *
 * The device has one arena, laid out as [run][phase region]: tensors of LIFETIME_RUN first, then a
 * region that the phases use in turn, each as [its PHASE tensors][its programs' tensors].  The
 * programs of a phase use the same bytes, and so do the phases.  Within a program every storage
 * lives from its first to its last op, and storages whose lives do not overlap may share bytes.
 * The peak is the exact number of bytes requested from the device.
 *
 * Run tensors whose home is host memory have an arena of their own there.
 *
 * Placement tries first fit in several orders and keeps the smallest result.  Its distance from the
 * lower bound (the largest sum of live bytes) is reported.
 */
#ifndef GPT_TRAIN_PLAN_PLAN_H
#define GPT_TRAIN_PLAN_PLAN_H

#include "backend/backend.h"
#include "base/hostmem.h"
#include "model/graph.h"

struct plan_options {
    const struct backend *
        device; /* defines the supported ops and their workspaces; NULL = no op needs any (tests) */
    const struct backend_info *info; /* borrowed, must outlive the plan, may be NULL; named in the
                                        error about a missing op */
    uint32_t alignment_bytes;        /* of every tensor; a power of two */
    uint64_t largest_segment_bytes;  /* 0 = unlimited */
    uint32_t guard_bytes; /* red zone after every tensor, for debug runs; a multiple of the
                             alignment, or 0 */
    bool quiet;           /* GT_NO_FIT is not logged: the caller has other graphs to try */
    /* Programs are measured and not placed: their own tensors have no address, and a phase's bytes
     * are those of its PHASE tensors.  The bounds are the plan's, and no placement can need less.
     */
    bool measure_only;
};

struct plan_program {
    uint64_t bytes;       /* peak of its program-lifetime tensors and workspaces, placed */
    uint64_t bytes_bound; /* lower bound: max over ops of live bytes */
    int32_t peak_op;      /* index of the op at that maximum */
    uint64_t live_bytes[CATEGORY_COUNT]; /* at the peak op, program-lifetime tensors and workspace
                                            only */
};

struct plan {
    const struct graph *graph; /* borrowed: must outlive the plan */
    struct plan_options options;
    struct address *
        tensor; /* [tensor_count]: of every tensor, views resolved; offset UINT64_MAX when unused */
    struct address *workspace[GRAPH_PROGRAMS_MAX]; /* [ops of the program] */
    uint64_t *workspace_bytes[GRAPH_PROGRAMS_MAX]; /* [ops of the program] */
    int32_t tensor_count;
    struct backend_segment segment[BACKEND_SEGMENTS_MAX];
    int32_t segment_count;
    int32_t device_segments; /* the first ones; the others are in host memory */
    uint64_t host_bytes; /* of the segments in host memory: nothing shares bytes there, so no plan
                            needs less */
    uint64_t run_bytes;  /* LIFETIME_RUN */
    uint64_t phase_bytes[PHASE_COUNT]; /* PHASE tensors + the largest of the phase's programs */
    uint64_t arena_bytes;              /* run + largest phase: allocated on the device */
    uint64_t arena_bytes_bound;        /* lower bound: with every program at its own lower bound */
    uint64_t category_bytes[CATEGORY_COUNT]; /* at the peak: run + phase + live at the peak op of
                                                the peak program */
    uint64_t host_category_bytes[CATEGORY_COUNT];    /* of host_bytes */
    int32_t peak_program;                            /* index into program[] */
    struct plan_program program[GRAPH_PROGRAMS_MAX]; /* as in the graph */
    int32_t program_count;
};

/* Returns the bytes of both arenas, which are requested together. */
static inline uint64_t plan_requested_bytes(const struct plan *plan)
{
    return plan->arena_bytes + plan->host_bytes;
}

struct search_request; /* plan_search.h */
struct search_result;
struct search_alternative;

/* How long a run takes; forecast.h makes and updates it. */
struct forecast {
    double step_seconds;     /* one update; 0 = unknown */
    double exchange_seconds; /* part of step_seconds for what ranks exchange; 0 = unknown, and not
                                included */
    double exchange_bytes;   /* sent by each rank in an update; it receives as many */
    double alone_seconds;    /* one update of one rank with all parts */
    double offload_seconds;  /* what offload adds to it; always modelled */
    double token_seconds; /* to sample a token of each sequence, modelled; 0: nothing is sampled */
    double evaluation_seconds; /* one evaluation of both splits */
    bool measured;             /* false: steps and evaluations are modelled */
    double uncertainty;        /* relative error to expect of these times; 1 and more: a factor */
    bool disturbed; /* the uncertainty is that large because other programs use the machine */
    double model_uncertainty; /* that of modelled_seconds; 0: unknown */
    int64_t steps;            /* updates to go */
    int64_t evaluations;      /* evaluations to go */
    double modelled_seconds;  /* one update according to the model; 0 = not modelled */
    double tested_seconds;    /* sum of the first measured steps, without the very first one */
    int32_t tested_steps;
    int64_t now_wall_s; /* the time at which a plan is printed, to forecast when the run ends */
};

/* What the arenas of one process may take: its share of the memory that a run may use. */
struct plan_share {
    uint64_t device_bytes, host_bytes;
};

/* Returns true if arenas of these sizes fit.  Nothing else decides whether a plan fits. */
static inline bool plan_share_fits(const struct plan_share *share, uint64_t device_bytes,
                                   uint64_t host_bytes)
{
    return device_bytes <= share->device_bytes && host_bytes <= share->host_bytes;
}

/* Facts that the report shows with the plan. */
struct plan_report_facts {
    const char *configuration; /* one line */
    const char *state_format;  /* NULL: omitted */
    double state_bytes;        /* of weights, masters, gradients and moments, per parameter */
    const char *device;        /* one line */
    uint64_t free_bytes;       /* of the device, 0 = unknown */
    uint64_t host_bytes;       /* host memory outside the arena: staging buffers, tables */
    bool host_apart; /* the device has its own memory, so host_bytes do not count against it */
    uint64_t context_bytes; /* used by the backend besides the arena */
    uint64_t headroom_bytes;
    bool frozen;           /* the weights are frozen, because adapters are trained */
    uint64_t budget_least; /* the memory_budget that this plan needs; 0 = omitted */
    struct forecast forecast;
    int64_t ranks;          /* number of ranks that divide the micro-steps */
    uint64_t rank_bytes[2]; /* of the arenas of the smallest rank and of the largest */

    const char *pins; /* smaller budgets that would be enough without some keys that were set; NULL
                         or "": there are none */
    const char
        *needless; /* settings that save memory which the run need not save; NULL: none is known */
    double needless_share; /* the share of an update's time that they cost */

    /* The search for the plan; NULL if there was none.  The arrays may be empty. */
    const struct search_request *request;
    const struct search_result *search;
    const struct search_alternative *alternatives;
    int32_t alternative_count;
    const struct search_alternative *front; /* memory against time; NULL = not requested */
    int32_t front_count;
};

#endif
