/* Products: what cuda_gemm.c has besides the op itself. */
#ifndef GPT_TRAIN_CUDA_CUDA_GEMM_H
#define GPT_TRAIN_CUDA_CUDA_GEMM_H

#include "backends/cuda/cuda.h"

/* Returns how many launch shapes a product has on this card. */
int32_t cuda_gemm_shapes(const struct backend *backend, const struct op_call *call);
/* Lets products of fp16 have fp16 sums if the card gains from that.  `anywhere` takes cards whose
 * gain is unknown too, and logs why there is no effect. */
void cuda_gemm_half_sums_decide(struct cuda_backend *cuda, bool anywhere);

#endif
