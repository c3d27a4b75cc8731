/* Shapes of launches of our own kernels, where a card may prefer another one than the default: rows of a tile, stages that
 * are under way, threads of a row, blocks that walk over elements.
 *
 * An op that has a choice says how many there are for a call; shape 0 is the default.  Which one a call has is settled while
 * its program is bound: the checkpoint's, else the one that was found to be fastest, else the default.
 */
#ifndef GPT_TRAIN_CUDA_CUDA_SHAPES_H
#define GPT_TRAIN_CUDA_CUDA_SHAPES_H

#include "backends/cuda/cuda_backend.h"

#define CUDA_SHAPES_MAX 512 /* calls that have one, by their own shapes and dtypes: a run has some dozens */

/* Of elementwise kernels and of those with a warp for each row: how many blocks walk over the work. */
enum cuda_walk_shape { CUDA_WALK_WAVES, CUDA_WALK_FEW, CUDA_WALK_ALL, CUDA_WALK_SHAPES };
/* attention_forward, tiles. */
enum cuda_forward_shape { CUDA_FORWARD_FOUR_WARPS, CUDA_FORWARD_EIGHT_WARPS, CUDA_FORWARD_SHAPES };
/* attention_backward, tiles. */
enum cuda_backward_shape { CUDA_BACKWARD_STAGES_MOST, CUDA_BACKWARD_STAGES_ONE, CUDA_BACKWARD_SHAPES };
/* cross_entropy: threads of a row; its sums depend on them. */
enum cuda_entropy_shape { CUDA_ENTROPY_512, CUDA_ENTROPY_256, CUDA_ENTROPY_SHAPES };

struct cuda_shape {
    uint64_t call;      /* identity of the call */
    uint64_t algorithm; /* what a checkpoint is told */
    int32_t shape;
};

struct cuda_shapes {
    int32_t forced; /* shape of all calls that have so many, for tests; 0: none */
    int32_t trying; /* of the call that is being timed; -1 */
    int32_t count;
    struct cuda_shape at[CUDA_SHAPES_MAX];
};

/* How many shapes a call of these ops has, on this card; at least 1. */
int32_t cuda_attention_forward_shapes(const struct backend *backend, const struct op_call *call);
int32_t cuda_attention_backward_shapes(const struct backend *backend, const struct op_call *call);
int32_t cuda_cross_entropy_shapes(const struct backend *backend, const struct op_call *call);

/* Which one a call has. */
int32_t cuda_shape_of(const struct backend *backend, const struct op_call *call);
/* Settles it, before the call is run for the first time: while tuning goes on by timing the call, where nobody has chosen.
 * Errors: GT_DEVICE. */
enum gt_status cuda_shape_settle(struct cuda_backend *cuda, const struct op_call *call);

#endif
