/* cross_entropy and loss_sum: arguments and launch functions. */
#ifndef GPT_TRAIN_CUDA_CUDA_CROSS_ENTROPY_H
#define GPT_TRAIN_CUDA_CUDA_CROSS_ENTROPY_H

#include <cuda_runtime.h>

#include "backends/cuda/cuda_floats.h"
#include "ops/op.h"

struct cuda_cross_entropy_args {
    const int32_t *targets;
    const union scalar_word *scalars;
    struct cuda_floats logits;
    float *losses;
    int64_t rows, width;
    int32_t vocab;
    int32_t threads; /* per block, which takes one row */
    bool gradient;
    bool aligned; /* every group of every row is aligned */
};

struct cuda_loss_sum_args {
    const float *losses;
    union scalar_word *scalars;
    int64_t count;
};

#ifdef __cplusplus
extern "C" {
#endif
cudaError_t cuda_launch_cross_entropy(cudaStream_t stream, const struct cuda_cross_entropy_args *args);
cudaError_t cuda_launch_loss_sum(cudaStream_t stream, const struct cuda_loss_sum_args *args);
#ifdef __cplusplus
}
#endif

#endif
