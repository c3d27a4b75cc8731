/* Probes: what a plan is made of, measured in small models and added up instead of planned.
 *
 * A program repeats itself: every block of one recompute level takes the same time, keeps the same bytes for the
 * backward pass and needs the same bytes while it runs; so does every loss chunk of the same rows.  One model with a
 * block at each level therefore gives the times and the lower bounds of all models with the same micro-batch.  Both are
 * exact: the sum is what plan_cost_seconds() and plan_create() find in the whole model, of which no plan can need less.
 */
#ifndef GPT_TRAIN_PLAN_PLAN_PROBE_H
#define GPT_TRAIN_PLAN_PLAN_PROBE_H

#include "model/model.h"
#include "plan/plan.h"
#include "plan/plan_cost.h"

/* Programs whose ops differ: the first micro-step of an update overwrites gradients, the next ones add to them. */
enum probe_kind { PROBE_FIRST, PROBE_NEXT, PROBE_EVALUATE, PROBE_KINDS };

/* Loss chunks: the first of several, the next ones, and the only one. */
enum probe_chunk { PROBE_CHUNK_FIRST, PROBE_CHUNK_NEXT, PROBE_CHUNK_ONLY, PROBE_CHUNKS };
#define PROBE_CHUNK_OPS_MAX 8

/* An op of a loss chunk. */
struct probe_op {
    struct op_call call;
    unsigned rows;   /* bits of the operands whose first dimension is the chunk's rows */
    unsigned logits; /* bits of those that exist only within the chunk */
};

/* The parts of a plan that depend on nothing but the part of the optimizer state in host memory. */
struct probe_states {
    uint64_t run_bytes;        /* of the whole run, on the device */
    uint64_t host_bytes;       /* of the run, in host memory */
    uint64_t update_bytes;     /* of the update's own tensors that are live at once, at least */
    uint64_t generate_bytes;   /* the same of generation, with its cache */
    struct plan_queues update; /* its times but the makespan, which is no sum over blocks */
};

/* The parts of a plan that depend neither on the micro-batch nor on recompute or chunks. */
struct probe_fixed {
    struct probe_states states[OFFLOAD_ALL + 1];
    /* [1]: if micro-steps add the parts. */
    uint64_t gradient_bytes[2]; /* of the training phase */
    double between_seconds[2];  /* of the programs between the micro-steps and the update */
    uint64_t largest;           /* persistent tensor */
    bool unplaceable;           /* it exceeds the largest allocation, or all together exceed the planner's limit */
    /* The ops of the first chunk of a program and of the next ones. */
    struct probe_op chunk[PROBE_KINDS][2][PROBE_CHUNK_OPS_MAX];
    int32_t chunk_ops[PROBE_KINDS][2];
};

/* A program, by its parts.  Bytes are those of its own tensors that are live at once. */
struct probe_program {
    struct plan_queues block[RECOMPUTE_LEVELS][2]; /* of a block's forward and of its backward pass; no makespan */
    double outside_seconds;                        /* of everything but blocks and loss chunks */
    uint64_t saved[RECOMPUTE_LEVELS];              /* of a block, while the loss is computed */
    uint64_t local[RECOMPUTE_LEVELS];              /* while a block runs, without what earlier blocks saved */
    uint64_t low, high; /* outside of blocks: while nothing is saved; in addition to what all blocks save */
    uint64_t largest;   /* tensor or workspace, except for those that exist only within a loss chunk */
    /* As `high`, at the ops of a loss chunk, without what exists only within it. */
    uint64_t chunk[PROBE_CHUNKS][PROBE_CHUNK_OPS_MAX];
};

struct probe {
    int32_t micro_batch, evaluate_batch, offload;
    uint64_t input_bytes; /* of a block */
    struct probe_program program[PROBE_KINDS];
};

/* The loss of one program. */
struct probe_loss {
    double seconds;
    uint64_t bytes, largest; /* as those of struct probe_program */
};

struct probe_request {
    struct hostmem *mem;
    const struct model_options *options;
    const struct plan_options *plan;
    const struct plan_rates *rates;
    int64_t samples; /* of a part */
};

/* Returns true if micro-steps of so many samples are whole parts, which they then add (see model_adds_in_step()). */
bool probe_adds_in_step(const struct probe_request *request, int32_t micro_batch);

/* Sets *bytes to `value` if that is larger. */
void probe_raise(uint64_t *bytes, uint64_t value);
/* Measures what is fixed, if `offload` also with each part of the optimizer state in host memory.  Errors: those of
 * model_create() and plan_create(). */
enum gt_status probe_fixed_make(const struct probe_request *request, bool offload, struct probe_fixed *out);
/* Measures one micro-batch, and evaluations of `evaluate_batch`.  If `offload` is OFFLOAD_ALL and not 0, frozen weights
 * are fetched.  Errors: the same. */
enum gt_status probe_make(const struct probe_request *request, int32_t micro_batch, int32_t evaluate_batch,
                          int32_t offload, struct probe *out);
struct probe_loss probe_loss_of(const struct probe_request *request, const struct probe_fixed *fixed,
                                const struct probe *probe, enum probe_kind kind, int64_t rows, int64_t chunk);

#endif
