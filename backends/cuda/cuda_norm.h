/* sum_of_squares and clip_factor: arguments and launch functions. */
#ifndef GPT_TRAIN_CUDA_CUDA_NORM_H
#define GPT_TRAIN_CUDA_CUDA_NORM_H

#include <cuda_runtime.h>

#include "backends/cuda/cuda_floats.h"
#include "ops/op.h"

struct cuda_sum_of_squares_args {
    struct cuda_floats x;
    float *partials; /* [parts]; `out` itself when there is one part */
    float *out;
    int64_t elements, parts;
    bool aligned;
};

struct cuda_clip_factor_args {
    const float *partials;
    union scalar_word *scalars;
    int64_t count;
    float clip_max;
};

#ifdef __cplusplus
extern "C" {
#endif
cudaError_t cuda_launch_sum_of_squares(cudaStream_t stream, const struct cuda_sum_of_squares_args *args);
cudaError_t cuda_launch_clip_factor(cudaStream_t stream, const struct cuda_clip_factor_args *args);
#ifdef __cplusplus
}
#endif

#endif
