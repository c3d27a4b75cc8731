/* residual: arguments and launch function. */
#ifndef GPT_TRAIN_CUDA_CUDA_RESIDUAL_H
#define GPT_TRAIN_CUDA_CUDA_RESIDUAL_H

#include <cuda_runtime.h>

#include "backends/cuda/cuda_floats.h"

struct cuda_residual_args {
    struct cuda_floats x, y, r; /* r may be x or y */
    struct cuda_walk walk;
};

#ifdef __cplusplus
extern "C" {
#endif
cudaError_t cuda_launch_residual(cudaStream_t stream, const struct cuda_residual_args *args);
#ifdef __cplusplus
}
#endif

#endif
