/* bias_backward: arguments and launch function. */
#ifndef GPT_TRAIN_CUDA_CUDA_BIAS_H
#define GPT_TRAIN_CUDA_CUDA_BIAS_H

#include <cuda_runtime.h>

#include "backends/cuda/cuda_parts.h"

/* The arguments of the first stage; the second is cuda_launch_parts_sum(). */
struct cuda_bias_args {
    struct cuda_floats dy;
    float *strips; /* [parts], one strip each */
    int64_t rows, columns, parts, strip_floats;
    bool aligned; /* every group of every row is aligned */
};

#ifdef __cplusplus
extern "C" {
#endif
cudaError_t cuda_launch_bias_backward(cudaStream_t stream, const struct cuda_bias_args *args);
#ifdef __cplusplus
}
#endif

#endif
