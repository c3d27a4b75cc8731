/* Writes a group: with stochastic rounding when the destination is bf16, unchanged when it is fp32. */
#ifndef GPT_TRAIN_CUDA_CUDA_ROUNDED_H
#define GPT_TRAIN_CUDA_CUDA_ROUNDED_H

#include "backends/cuda/cuda_floats.h"
#include "backends/cuda/cuda_philox.h"

/* `to` is bf16 or fp32; the span begins at a multiple of eight. */
DEVICE void cuda_write_rounded(const struct cuda_floats &to, const struct cuda_span &span,
                               const float (&value)[CUDA_GROUP], const struct cuda_rounding &rounding, uint32_t stream)
{
    if (to.dtype != DTYPE_BF16) {
        cuda_write(to, span, value);
        return;
    }
    const struct philox_block random = cuda_rounding_bits(rounding, span.first, stream);
    uint32_t half[CUDA_GROUP];
#pragma unroll
    for (int k = 0; k < CUDA_GROUP; k++)
        half[k] = cuda_rounding_bf16(__float_as_uint(value[k]), cuda_philox_bits(random, k)) & 0xffffu;
    struct cuda_group group;
    group.low =
        make_uint4(half[0] | half[1] << 16, half[2] | half[3] << 16, half[4] | half[5] << 16, half[6] | half[7] << 16);
    group.high = make_uint4(0, 0, 0, 0);
    cuda_put(to, span, group);
}

#endif
