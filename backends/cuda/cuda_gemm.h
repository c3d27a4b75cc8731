/* What the products of matrices and their one kernel share: the launch functions of kernels/gemm.cu. */
#ifndef GPT_TRAIN_CUDA_CUDA_GEMM_H
#define GPT_TRAIN_CUDA_CUDA_GEMM_H

#include <stdint.h>

#include <cuda_runtime.h>

#include "base/dtype.h"

#ifdef __cplusplus
extern "C" {
#endif

/* d[rows, columns] = sums + bias, rounded once.  sums is fp32 and not d; bias[columns] has a dtype of its own. */
struct cuda_bias_add_args {
    const float *sums;
    const void *bias;
    void *d;
    enum dtype bias_dtype, d_dtype;
    int64_t rows, columns;
};

cudaError_t cuda_launch_bias_add(cudaStream_t stream, const struct cuda_bias_add_args *args);

#ifdef __cplusplus
}
#endif

#endif
