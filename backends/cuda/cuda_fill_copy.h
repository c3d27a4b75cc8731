/* fill and copy: arguments and launch functions. */
#ifndef GPT_TRAIN_CUDA_CUDA_FILL_COPY_H
#define GPT_TRAIN_CUDA_CUDA_FILL_COPY_H

#include <cuda_runtime.h>

#include "backends/cuda/cuda_floats.h"

struct cuda_fill_args {
    struct cuda_floats y;
    float value;
    struct cuda_walk walk;
};

struct cuda_copy_args {
    struct cuda_floats x, y; /* y may be x if the dtypes are equal */
    bool accumulate;
    struct cuda_walk walk;
};

#ifdef __cplusplus
extern "C" {
#endif
cudaError_t cuda_launch_fill(cudaStream_t stream, const struct cuda_fill_args *args);
cudaError_t cuda_launch_copy(cudaStream_t stream, const struct cuda_copy_args *args);
#ifdef __cplusplus
}
#endif

#endif
