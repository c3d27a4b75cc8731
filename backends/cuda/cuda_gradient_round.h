/* gradient_round: arguments and launch function. */
#ifndef GPT_TRAIN_CUDA_CUDA_GRADIENT_ROUND_H
#define GPT_TRAIN_CUDA_CUDA_GRADIENT_ROUND_H

#include <cuda_runtime.h>

#include "backends/cuda/cuda_floats.h"
#include "ops/op.h"

struct cuda_gradient_round_args {
    struct cuda_floats x, y; /* x is fp32, y bf16 */
    const union scalar_word *scalars;
    int64_t index_base;
    bool accumulate;
    struct cuda_walk walk;
};

#ifdef __cplusplus
extern "C" {
#endif
cudaError_t cuda_launch_gradient_round(cudaStream_t stream, const struct cuda_gradient_round_args *args);
#ifdef __cplusplus
}
#endif

#endif
