/* dropout: arguments and launch function. */
#ifndef GPT_TRAIN_CUDA_CUDA_DROPOUT_H
#define GPT_TRAIN_CUDA_CUDA_DROPOUT_H

#include <cuda_runtime.h>

#include "backends/cuda/cuda_floats.h"
#include "ops/op.h"

struct cuda_dropout_args {
    struct cuda_floats x, y; /* y may be x */
    const union scalar_word *scalars;
    int64_t samples, sample_elements;
    int32_t site;
    uint32_t threshold;
    float scale;
    int32_t blocks, blocks_of_samples; /* the grid's x and y */
    bool aligned;                      /* every group of every sample is aligned */
};

#ifdef __cplusplus
extern "C" {
#endif
cudaError_t cuda_launch_dropout(cudaStream_t stream, const struct cuda_dropout_args *args);
#ifdef __cplusplus
}
#endif

#endif
