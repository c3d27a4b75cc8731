/* Random bits in kernels: Philox4x32-10, dropout masks and stochastic rounding, with the bits of base/rng.h and
 * ops/op.h.
 *
 * Everything is integer arithmetic, the same under nvcc and under emulation.  A block of four words serves eight
 * elements, 16 bits each.  The element alone determines its draw, so that no kernel keeps a state.  Counters and keys
 * are those of op.h.
 */
#ifndef GPT_TRAIN_CUDA_CUDA_PHILOX_H
#define GPT_TRAIN_CUDA_CUDA_PHILOX_H

#include "backends/cuda/cuda_floats.h"

/* philox4x32_10() of base/rng.h. */
DEVICE struct philox_block cuda_philox(struct philox_key key, struct philox_block counter)
{
    uint32_t x0 = counter.word[0], x1 = counter.word[1], x2 = counter.word[2], x3 = counter.word[3];
    uint32_t key0 = key.word[0], key1 = key.word[1];
    UNROLLED(round, 10) {
        const uint32_t even_high = __umulhi(0xd2511f53u, x0), even_low = 0xd2511f53u * x0;
        const uint32_t odd_high = __umulhi(0xcd9e8d57u, x2), odd_low = 0xcd9e8d57u * x2;
        x0 = odd_high ^ x1 ^ key0;
        x1 = odd_low;
        x2 = even_high ^ x3 ^ key1;
        x3 = even_low;
        key0 += 0x9e3779b9u;
        key1 += 0xbb67ae85u;
    }
    struct philox_block block = {{x0, x1, x2, x3}};
    return block;
}

/* philox_key_make() of the seed in the scalars. */
DEVICE struct philox_key cuda_philox_key(const union scalar_word *scalars, enum rng_purpose purpose)
{
    const uint32_t low = scalars[SCALAR_SEED_LO].u, high = scalars[SCALAR_SEED_HI].u;
    struct philox_key key = {{low, (high << 8 | high >> 24) ^ (uint32_t)purpose}};
    return key;
}

/* The 16 bits of element `lane` (0 .. 7) of a block; a constant lane costs one instruction. */
DEVICE uint32_t cuda_philox_bits(const struct philox_block &block, int lane)
{
    const uint32_t word = block.word[lane / 2];
    return lane % 2 != 0 ? word >> 16 : word & 0xffffu;
}

/* ---- dropout ---- */

/* Everything that identifies a mask except the element: one site of one sample in one step.  The host computes the
 * threshold and the scale: dropout_threshold() and dropout_scale(). */
struct cuda_mask {
    struct philox_key key;
    uint32_t site, sample, step, threshold;
};

/* `sample` counts within the micro-batch. */
DEVICE struct cuda_mask cuda_mask_make(const union scalar_word *scalars, int32_t site, int64_t sample,
                                       uint32_t threshold)
{
    struct cuda_mask mask;
    mask.key = cuda_philox_key(scalars, RNG_DROPOUT);
    mask.site = (uint32_t)site;
    mask.sample = scalars[SCALAR_SAMPLE_BASE].u + (uint32_t)sample;
    mask.step = scalars[SCALAR_STEP].u;
    mask.threshold = threshold;
    return mask;
}

/* Bit k is set when element 8 group + k is kept. */
DEVICE uint32_t cuda_mask_kept(const struct cuda_mask &mask, int64_t group)
{
    const struct philox_block counter = {{(uint32_t)group, mask.site, mask.sample, mask.step}};
    const struct philox_block block = cuda_philox(mask.key, counter);
    uint32_t kept = 0;
    UNROLLED(k, 8)
        kept |= (cuda_philox_bits(block, k) >= mask.threshold ? 1u : 0u) << k;
    return kept;
}

/* ---- stochastic rounding ---- */

struct cuda_rounding {
    struct philox_key key;
    uint32_t step;
    uint64_t index_base; /* elements of all parameters before this tensor */
};

DEVICE struct cuda_rounding cuda_rounding_make(const union scalar_word *scalars, int64_t index_base)
{
    struct cuda_rounding rounding;
    rounding.key = cuda_philox_key(scalars, RNG_STATES);
    rounding.step = scalars[SCALAR_STEP].u;
    rounding.index_base = (uint64_t)index_base;
    return rounding;
}

DEVICE struct philox_block cuda_rounding_group(const struct cuda_rounding &rounding, uint64_t group, uint32_t stream)
{
    struct philox_block counter = {{(uint32_t)group, (uint32_t)(group >> 32), rounding.step, stream}};
    return cuda_philox(rounding.key, counter);
}

/* Returns the bits of the eight elements from `first` of the tensor on as one block.  `first` is a multiple of eight;
 * when index_base is not, two blocks are drawn and shifted together. */
DEVICE struct philox_block cuda_rounding_bits(const struct cuda_rounding &rounding, int64_t first, uint32_t stream)
{
    const uint64_t index = rounding.index_base + (uint64_t)first, group = index / 8;
    const uint32_t shift = (uint32_t)(index % 8);
    struct philox_block bits = cuda_rounding_group(rounding, group, stream);
    if (shift == 0)
        return bits;
    const struct philox_block next = cuda_rounding_group(rounding, group + 1, stream);
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

/* Stochastic rounding as op.h defines it, on the bits of fp32. */
DEVICE uint32_t cuda_rounding_bf16(uint32_t bits, uint32_t random)
{
    if ((bits & 0x7f800000u) == 0x7f800000u)
        return bits >> 16 | ((bits & 0x7fffffu) != 0 ? 0x40u : 0u);
    return (bits + random) >> 16;
}

/* Writes a group: with stochastic rounding when `to` is bf16, unchanged when it is fp32.  The span begins at a multiple
 * of eight. */
DEVICE void cuda_write_rounded(const struct cuda_floats &to, const struct cuda_span &span,
                               const float (&value)[CUDA_GROUP], const struct cuda_rounding &rounding, uint32_t stream)
{
    if (to.dtype != DTYPE_BF16) {
        cuda_write(to, span, value);
        return;
    }
    const struct philox_block random = cuda_rounding_bits(rounding, span.first, stream);
    uint32_t half[CUDA_GROUP];
    UNROLLED(k, CUDA_GROUP)
        half[k] = cuda_rounding_bf16(__float_as_uint(value[k]), cuda_philox_bits(random, k)) & 0xffffu;
    struct cuda_group group;
    group.low =
        make_uint4(half[0] | half[1] << 16, half[2] | half[3] << 16, half[4] | half[5] << 16, half[6] | half[7] << 16);
    group.high = make_uint4(0, 0, 0, 0);
    cuda_put(to, span, group);
}

#endif
