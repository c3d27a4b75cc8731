/* The host side of all ops but attention and products: operands, shapes, the split of rows, and
 * launches. */
#ifndef GPT_TRAIN_CUDA_CUDA_OPS_H
#define GPT_TRAIN_CUDA_CUDA_OPS_H

#include "backends/cuda/cuda.h"

/* Returns how many calls, from the first on, one launch takes: those of AdamW and of the norm that
 * follow one another, which work on different tensors, and exchanges of one piece. */
size_t cuda_calls_alike(const struct backend *backend, const struct op_call *calls, size_t count);
/* Enqueues so many calls of such an op. */
enum gt_status cuda_alike_start(struct backend *backend, const struct op_call *calls, size_t count);

/* Returns how many launch shapes a call has on this card: the last ones of its op, at least 1. */
int32_t cuda_cross_entropy_shapes(const struct backend *backend, const struct op_call *call);

#endif
