/* gemm: arguments and launch function of the kernel that finishes products (kernels/gemm.cu). */
#ifndef GPT_TRAIN_CUDA_CUDA_GEMM_H
#define GPT_TRAIN_CUDA_CUDA_GEMM_H

#include <stdbool.h>
#include <stdint.h>

#include <cuda_runtime.h>

#include "base/dtype.h"

#ifdef __cplusplus
extern "C" {
#endif

/* d[rows, columns] = sums + addend, rounded once.  sums is fp32 and not d.  The addend is a bias [columns] with its own
 * dtype, or a matrix [rows, columns] of d's dtype, which may be d. */
struct cuda_sums_add_args {
    const float *sums;
    const void *addend;
    void *d;
    enum dtype addend_dtype, d_dtype;
    bool addend_is_matrix;
    int64_t rows, columns;
};

cudaError_t cuda_launch_sums_add(cudaStream_t stream, const struct cuda_sums_add_args *args);

#ifdef __cplusplus
}
#endif

#endif
