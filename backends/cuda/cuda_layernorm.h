/* layernorm_forward and layernorm_backward: arguments and launch functions. */
#ifndef GPT_TRAIN_CUDA_CUDA_LAYERNORM_H
#define GPT_TRAIN_CUDA_CUDA_LAYERNORM_H

#include <cuda_runtime.h>

#include "backends/cuda/cuda_parts.h"

#define CUDA_LAYERNORM_WARPS 8 /* of a block, at most; each takes one row at a time */

struct cuda_layernorm_forward_args {
    struct cuda_floats x, gain, bias, y;
    float *mean, *rstd;
    int64_t rows, channels;
    float epsilon;
    int32_t blocks;
    bool aligned; /* every group of every row is aligned, in every operand */
};

/* The arguments of dx and of the first stage of dgain and dbias; the second stage is cuda_launch_parts_sum(). */
struct cuda_layernorm_backward_args {
    struct cuda_floats dy, x, gain, dx;
    const float *mean, *rstd;
    float *strips; /* [parts], two strips each: dgain's and dbias's */
    int64_t rows, channels, parts, strip_floats;
    int32_t warps;   /* of a block */
    bool is_shared;  /* each warp sums its own strips in shared memory; else the block's one warp sums in `strips` */
    bool accumulate; /* into dx */
    bool aligned;
};

#ifdef __cplusplus
extern "C" {
#endif
cudaError_t cuda_launch_layernorm_forward(cudaStream_t stream, const struct cuda_layernorm_forward_args *args);
cudaError_t cuda_launch_layernorm_backward(cudaStream_t stream, const struct cuda_layernorm_backward_args *args);
#ifdef __cplusplus
}
#endif

#endif
