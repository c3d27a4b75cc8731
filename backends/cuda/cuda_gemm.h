/* Products: what cuda_gemm.c has besides the op itself. */
#ifndef GPT_TRAIN_CUDA_CUDA_GEMM_H
#define GPT_TRAIN_CUDA_CUDA_GEMM_H

#include "backends/cuda/cuda.h"

/* Returns how many launch shapes a product has on this card. */
int32_t cuda_gemm_shapes(const struct backend *backend, const struct op_call *call);
/* Returns how many calls, from a product on, one launch takes in one of its shapes: 2 if the next
 * op reads the product and may be its end, else 1. */
size_t cuda_gemm_group(const struct backend *backend, const struct op_call *calls, size_t count);
/* Returns true if it takes two in the product's shape; and enqueues them. */
bool cuda_gemm_is_pair(const struct backend *backend, const struct op_call *calls, size_t count);
enum gt_status cuda_gemm_pair_start(struct backend *backend, const struct op_call *calls);
/* Lets products of fp16, attention's too, have fp16 sums if the card gains from that.  `anywhere`
 * takes cards whose gain is unknown too, and logs why there is no effect. */
void cuda_gemm_half_sums_decide(struct cuda_backend *cuda, bool anywhere);

#endif
