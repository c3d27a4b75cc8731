/* blend: arguments and launch function. */
#ifndef GPT_TRAIN_CUDA_CUDA_BLEND_H
#define GPT_TRAIN_CUDA_CUDA_BLEND_H

#include <cuda_runtime.h>

#include "backends/cuda/cuda_floats.h"

struct cuda_blend_args {
    struct cuda_floats x, z, y; /* y may be x or z */
    float alpha, beta;
    struct cuda_walk walk;
};

#ifdef __cplusplus
extern "C" {
#endif
cudaError_t cuda_launch_blend(cudaStream_t stream, const struct cuda_blend_args *args);
#ifdef __cplusplus
}
#endif

#endif
