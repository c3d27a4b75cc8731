/* Stochastic rounding in kernels, eight elements at a time.
 *
 * Everything is integer arithmetic, the same under nvcc and under emulation.  The element alone determines its random
 * bits (base/bits.h), so that no kernel keeps a state.
 */
#ifndef GPT_TRAIN_CUDA_CUDA_PHILOX_H
#define GPT_TRAIN_CUDA_CUDA_PHILOX_H

#include "backends/cuda/cuda_floats.h"

/* Returns the bits of the eight elements from `first` of the tensor on as one block.  `first` is a multiple of eight;
 * when index_base is not, two blocks are drawn and shifted together. */
DEVICE struct philox_block cuda_rounding_bits(const struct rounding &rounding, int64_t first, uint32_t stream)
{
    const uint64_t index = rounding.index_base + (uint64_t)first, group = index / 8;
    const uint32_t shift = (uint32_t)(index % 8);
    struct philox_block bits, next;
    rounding_words(&rounding, group, stream, bits.word);
    if (shift == 0)
        return bits;
    rounding_words(&rounding, group + 1, stream, next.word);
    uint32_t word[8];
    UNROLLED(k, 4) {
        word[k] = bits.word[k];
        word[k + 4] = next.word[k];
    }
    /* Shift by 4, 2 and 1 elements: every index is a constant, so that the words stay in registers. */
    UNROLLED(k, 6)
        word[k] = (shift & 4u) != 0 ? word[k + 2] : word[k];
    UNROLLED(k, 5)
        word[k] = (shift & 2u) != 0 ? word[k + 1] : word[k];
    UNROLLED(k, 4)
        bits.word[k] = (shift & 1u) != 0 ? word[k] >> 16 | word[k + 1] << 16 : word[k];
    return bits;
}

/* Writes a group: with stochastic rounding when `to` is bf16, unchanged when it is fp32.  The span begins at a multiple
 * of eight. */
DEVICE void cuda_write_rounded(const struct cuda_floats &to, const struct cuda_span &span,
                               const float (&value)[CUDA_GROUP], const struct rounding &rounding, uint32_t stream)
{
    if (to.dtype != DTYPE_BF16) {
        cuda_write(to, span, value);
        return;
    }
    const struct philox_block random = cuda_rounding_bits(rounding, span.first, stream);
    uint32_t half[CUDA_GROUP];
    UNROLLED(k, CUDA_GROUP)
        half[k] = bf16_stochastic(value[k], philox_bits(random.word, k));
    struct cuda_group group;
    group.low =
        make_uint4(half[0] | half[1] << 16, half[2] | half[3] << 16, half[4] | half[5] << 16, half[6] | half[7] << 16);
    group.high = make_uint4(0, 0, 0, 0);
    cuda_put(to, span, group);
}

#endif
