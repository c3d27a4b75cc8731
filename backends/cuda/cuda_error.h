/* Errors of CUDA's run-time API. */
#ifndef GPT_TRAIN_CUDA_CUDA_ERROR_H
#define GPT_TRAIN_CUDA_CUDA_ERROR_H

#include "backends/cuda/cuda.h"

/* Returns GT_OK for cudaSuccess.  Otherwise logs one line with `what`, the error's name and text,
 * GPU, capability, driver and toolkit, and returns GT_DEVICE (GT_NO_MEMORY for
 * cudaErrorMemoryAllocation).  `what` names the operation: "layernorm_forward".  After an error
 * that takes the context down every later call fails with the same error; it is logged once. During
 * a stream capture, other errors are kept (cuda_capture_fail) and not logged. */
enum gt_status cuda_check(struct backend *backend, cudaError_t error, const char *what);
/* Logs that memory is short for kernels that are loaded at their first launch, while programs are
 * bound, and the budget that leaves some; returns GT_NO_FIT.  cuda_check() does so for
 * cudaErrorMemoryAllocation. */
enum gt_status cuda_loading_refuse(const struct cuda_backend *cuda, const char *what);

#endif
