/* The card's measured rate of matrix products. */
#ifndef GPT_TRAIN_CUDA_CUDA_PEAK_H
#define GPT_TRAIN_CUDA_CUDA_PEAK_H

#include "backends/cuda/cuda_backend.h"

/* backend_ops.peak_flops. */
enum gt_status cuda_peak_flops(struct backend *backend, enum dtype dtype, struct address scratch, size_t scratch_bytes,
                               double seconds, double *out);

#endif
