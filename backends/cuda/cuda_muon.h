/* muon_momentum, muon_normalize and muon_step: arguments and launch functions. */
#ifndef GPT_TRAIN_CUDA_CUDA_MUON_H
#define GPT_TRAIN_CUDA_CUDA_MUON_H

#include <cuda_runtime.h>

#include "backends/cuda/cuda_floats.h"
#include "ops/op.h"

struct cuda_muon_momentum_args {
    struct cuda_floats grad, momentum, ahead; /* ahead, u, is fp32 */
    const union scalar_word *scalars;
    float beta;
    int64_t index_base;
    struct cuda_walk walk;
};

struct cuda_muon_normalize_args {
    struct cuda_floats x, y;
    const float *sum;
    struct cuda_walk walk;
};

struct cuda_muon_step_args {
    struct cuda_floats direction, param, master; /* master: NULL when absent */
    const union scalar_word *scalars;
    float alpha, scale, weight_decay;
    int64_t index_base;
    struct cuda_walk walk;
};

#ifdef __cplusplus
extern "C" {
#endif
cudaError_t cuda_launch_muon_momentum(cudaStream_t stream, const struct cuda_muon_momentum_args *args);
cudaError_t cuda_launch_muon_normalize(cudaStream_t stream, const struct cuda_muon_normalize_args *args);
cudaError_t cuda_launch_muon_step(cudaStream_t stream, const struct cuda_muon_step_args *args);
#ifdef __cplusplus
}
#endif

#endif
