/* Chooses the algorithms of products and the launch shapes: the checkpoint's choice, else the one
 * that timing found to be fastest, else the default.  Keeps the measured times.
 *
 * Launch shapes are those of our own kernels, where the fastest configuration depends on the card:
 * rows of a tile, stages in flight, threads for a row, blocks that walk over elements.  An op with
 * a choice reports how many shapes a call has; shape 0 is the default.  The shape of a call is
 * resolved while its program is bound.
 *
 * A choice is identified by two hashes, of the call and of the algorithm.  It only selects among
 * the candidates that are offered for the call now: nothing read from a file reaches a library or a
 * launch.
 */
#ifndef GPT_TRAIN_CUDA_CUDA_TUNING_H
#define GPT_TRAIN_CUDA_CUDA_TUNING_H

#include "backends/cuda/cuda.h"

/* ---- lists of algorithms ---- */

#define CUDA_ALGORITHMS_MAX 1024

struct cuda_algorithms {
    int32_t count;
    struct backend_algorithm at[CUDA_ALGORITHMS_MAX];
};

/* Returns the algorithm, or 0 when the call is not in the list. */
uint64_t cuda_algorithms_find(const struct cuda_algorithms *algorithms, uint64_t call);
/* Adds a choice, or replaces that of the same call.  Returns its index, or -1 when the list is full
 * and the choice is dropped. */
int32_t cuda_algorithms_put(struct cuda_algorithms *algorithms, uint64_t call, uint64_t algorithm);

/* ---- launch shapes ---- */

/* Elementwise kernels and those with a warp for each row: how many blocks walk over the work. */
enum cuda_walk_shape { CUDA_WALK_WAVES, CUDA_WALK_FEW, CUDA_WALK_ALL, CUDA_WALK_SHAPES };
/* attention_forward, tiles. */
enum cuda_forward_shape { CUDA_FORWARD_FOUR_WARPS, CUDA_FORWARD_EIGHT_WARPS, CUDA_FORWARD_SHAPES };
/* attention_backward, tiles. */
enum cuda_backward_shape {
    CUDA_BACKWARD_AT_ONCE,
    CUDA_BACKWARD_STAGES_MOST,
    CUDA_BACKWARD_STAGES_ONE,
    CUDA_BACKWARD_SHAPES
};
/* cross_entropy: threads for a row.  The sums depend on their number. */
enum cuda_entropy_shape { CUDA_ENTROPY_512, CUDA_ENTROPY_256, CUDA_ENTROPY_SHAPES };
/* gemm of 16 bits: our own kernel with fp16 sums where half_sums is on, cuBLASLt, and our own with
 * fp32 sums. */
enum cuda_gemm_shape {
    CUDA_GEMM_HALF_128,
    CUDA_GEMM_HALF_256,
    CUDA_GEMM_LIBRARY,
    CUDA_GEMM_OWN_128,
    CUDA_GEMM_OWN_256,
    CUDA_GEMM_SHAPES
};

#define CUDA_SHAPES_MAX 5 /* of a call */

/* The launch shapes of an op. */
struct cuda_shapes_of_op {
    int32_t (*count)(const struct backend *backend,
                     const struct op_call *call); /* NULL: as many as there are names */
    /* Returns how many calls, from one of the op on, are timed together; NULL: one. */
    size_t (*group)(const struct backend *backend, const struct op_call *calls, size_t count);
    const char *name[CUDA_SHAPES_MAX];
    uint32_t ignored; /* bit of each operand whose size does not matter: a table of which one row is
                         read */
};
extern const struct cuda_shapes_of_op cuda_shapes_of_ops[OP_KIND_COUNT]; /* cuda_table.c */

/* Returns the shape of a call. */
int32_t cuda_shape_of(const struct backend *backend, const struct op_call *call);
/* Resolves the shape of the first of the calls before it runs for the first time.  While tuning is
 * on, times a call that has no choice yet, together with the calls that one launch may run with it.
 * Errors: GT_DEVICE. */
enum gt_status cuda_launch_shape_resolve(struct cuda_backend *cuda, const struct op_call *calls,
                                         size_t count);
/* Adds the shapes of bound calls. */
void cuda_launch_algorithms(const struct cuda_backend *cuda, struct cuda_algorithms *out);

/* ---- all algorithms ---- */

/* Counts since the last cuda_tuning_store(). */
struct cuda_found {
    int32_t timed, faster;
    double gain_most; /* 0.2: a fifth less time */
};

/* The contents of the user's cache. */
struct cuda_kept {
    struct cuda_algorithms algorithms;
    struct backend_timing timing[CUDA_ALGORITHMS_MAX]; /* of each choice */
};

struct cuda_tuning {
    bool on;        /* --tune */
    bool is_unread; /* the stored list could not be read; it may be valid, so it is kept */
    int32_t forced; /* for tests: shape of all calls that have that many; 0: none */
    const struct op_call *tried; /* call that is being timed in shape `trying`, else NULL */
    int32_t trying;
    struct cuda_algorithms resolved;    /* of calls with several shapes; a run has a few dozen */
    int32_t shape[CUDA_ALGORITHMS_MAX]; /* of each resolved call */
    struct cuda_found products, shapes; /* results of tuning */
    struct cuda_algorithms stored;      /* from the checkpoint */
    struct cuda_kept kept;              /* from the user's cache, and found since */
    struct cuda_algorithms reported;    /* what backend_ops.algorithms returned */
};

/* Allocates cuda->tuning, and reads the list that was stored for this card, driver and library.
 * Errors: GT_NO_MEMORY. */
enum gt_status cuda_tuning_create(struct cuda_backend *cuda, bool on);
/* Stores the list and logs what tuning found.  Called after a program was bound. */
void cuda_tuning_store(struct cuda_backend *cuda);
/* Records the result of a call's trial. */
struct cuda_trial_result;
void cuda_tuning_found(struct cuda_tuning *tuning, struct cuda_found *found,
                       const struct backend_algorithm *choice,
                       const struct cuda_trial_result *result, const struct backend_timing *timing);

/* Returns the index of the candidate that the checkpoint or an earlier timing chose for the call,
 * or -1. */
int32_t cuda_tuning_chosen(const struct cuda_tuning *tuning, uint64_t call, int32_t count,
                           uint64_t (*identity)(const void *context, int32_t candidate),
                           const void *context);

/* backend_ops.choose and .timings. */
enum gt_status cuda_tuning_choose(struct backend *backend,
                                  const struct backend_algorithm *algorithms, size_t count);
const struct backend_timing *cuda_tuning_timings(struct backend *backend, size_t *count);

#endif
