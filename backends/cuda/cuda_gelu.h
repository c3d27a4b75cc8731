/* gelu_forward and gelu_backward: arguments and launch functions. */
#ifndef GPT_TRAIN_CUDA_CUDA_GELU_H
#define GPT_TRAIN_CUDA_CUDA_GELU_H

#include <cuda_runtime.h>

#include "backends/cuda/cuda_floats.h"
#include "ops/op.h"

struct cuda_gelu_args {
    struct cuda_floats dy, x; /* dy: backward only */
    struct cuda_floats out;   /* y, or dx; may be dy or x */
    enum gelu_kind kind;
    struct cuda_walk walk;
};

#ifdef __cplusplus
extern "C" {
#endif
cudaError_t cuda_launch_gelu_forward(cudaStream_t stream, const struct cuda_gelu_args *args);
cudaError_t cuda_launch_gelu_backward(cudaStream_t stream, const struct cuda_gelu_args *args);
#ifdef __cplusplus
}
#endif

#endif
