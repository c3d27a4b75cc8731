/* Launch shapes of our own kernels, where the fastest configuration depends on the card: rows of a tile, stages in
 * flight, threads for a row, blocks that walk over elements.
 *
 * An op with a choice reports how many shapes a call has; shape 0 is the default.  The shape of a call is settled while
 * its program is bound: the checkpoint's, else the one that timing found to be fastest, else the default.
 */
#ifndef GPT_TRAIN_CUDA_CUDA_SHAPES_H
#define GPT_TRAIN_CUDA_CUDA_SHAPES_H

#include "backends/cuda/cuda.h"

#define CUDA_SHAPES_MAX 512 /* calls with a choice of shape, distinct in sizes and dtypes; a run has a few dozen */

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
/* gemm of fp16 where half_sums is on; fp32 sums are cuBLASLt's. */
enum cuda_gemm_shape { CUDA_GEMM_HALF_SUMS, CUDA_GEMM_FLOAT_SUMS, CUDA_GEMM_SHAPES };

struct cuda_shape {
    uint64_t call;      /* identity of the call */
    uint64_t algorithm; /* as stored in a checkpoint */
    int32_t shape;
};

struct cuda_shapes {
    int32_t forced; /* for tests: shape of all calls that have that many; 0: none */
    int32_t trying; /* shape that is being timed, else -1 */
    int32_t count;
    struct cuda_shape at[CUDA_SHAPES_MAX];
};

/* Returns how many shapes a call of these ops has on this card: the last ones of its op, at least 1. */
int32_t cuda_attention_forward_shapes(const struct backend *backend, const struct op_call *call);
int32_t cuda_attention_backward_shapes(const struct backend *backend, const struct op_call *call);
int32_t cuda_gemm_shapes(const struct backend *backend, const struct op_call *call);
int32_t cuda_cross_entropy_shapes(const struct backend *backend, const struct op_call *call);

/* Returns the shape of a call. */
int32_t cuda_shape_of(const struct backend *backend, const struct op_call *call);
/* Settles the shape before the call runs for the first time.  While tuning is on, a call without a choice is timed.
 * Errors: GT_DEVICE. */
enum gt_status cuda_shape_settle(struct cuda_backend *cuda, const struct op_call *call);

#endif
