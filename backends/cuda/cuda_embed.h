/* embed_forward and embed_backward: arguments and launch functions. */
#ifndef GPT_TRAIN_CUDA_CUDA_EMBED_H
#define GPT_TRAIN_CUDA_CUDA_EMBED_H

#include <cuda_runtime.h>

#include "backends/cuda/cuda_floats.h"
#include "ops/op.h"

/* Forward: a warp takes a row.  Backward: a block of CUDA_EMBED_WARPS warps takes one row of a table and a tile of
 * columns. */
#define CUDA_EMBED_WARPS 8
#define CUDA_EMBED_TILE (32 * CUDA_GROUP) /* columns that the groups of a warp cover */

struct cuda_embed_forward_args {
    const int32_t *ids;
    struct cuda_floats wte, wpe, y;
    const union scalar_word *scalars;
    int64_t rows, channels, time;
    int32_t blocks;
    bool aligned; /* every group of every row is aligned, in every operand */
};

struct cuda_embed_backward_args {
    struct cuda_floats dy;
    const int32_t *ids, *order, *starts;
    struct cuda_floats dwte, dwpe;
    int64_t rows, channels, time, positions;
    int64_t groups_max; /* limit on the groups of equal ids; their number is in starts[0] */
    bool accumulate;    /* into dwpe */
    bool aligned;
};

#ifdef __cplusplus
extern "C" {
#endif
cudaError_t cuda_launch_embed_forward(cudaStream_t stream, const struct cuda_embed_forward_args *args);
cudaError_t cuda_launch_embed_backward(cudaStream_t stream, const struct cuda_embed_backward_args *args);
#ifdef __cplusplus
}
#endif

#endif
