/* Dropout masks: Philox over many counters at once.  ops/op.h defines which bits decide which
 * element. */
#ifndef GPT_TRAIN_CPU_CPU_PHILOX_H
#define GPT_TRAIN_CPU_CPU_PHILOX_H

#include "backends/cpu/cpu.h"
#include "base/rng.h"
#include "ops/op.h"

#define CPU_MASK_GROUPS 64

/* The parameters that a mask's elements share: one site of one sample in one step. */
struct cpu_mask {
    struct philox_key key;
    uint32_t site, sample, step;
    uint32_t threshold;
    float scale; /* factor for kept elements */
};

static inline struct cpu_mask cpu_mask_make(const union scalar_word *scalars, float dropout)
{
    return (struct cpu_mask){.key = philox_key_of_scalars(scalars, RNG_DROPOUT),
                             .step = scalars[SCALAR_STEP].u,
                             .threshold = dropout_threshold(dropout),
                             .scale = dropout_scale(dropout)};
}

/* factor[8 * groups] = scale for kept elements, 0 for dropped ones.  The first element is number 8
 * * first_group; groups <= CPU_MASK_GROUPS. */
static inline void cpu_mask_fill(const struct cpu_mask *mask, int64_t first_group, int64_t groups,
                                 float *factor)
{
    uint32_t word[4 * CPU_MASK_GROUPS];
    assert(groups <= CPU_MASK_GROUPS);
    const struct philox_key key = mask->key;
    const uint32_t first = (uint32_t)first_group;
    const uint32_t site = mask->site, sample = mask->sample, step = mask->step;
    CPU_SIMD(g, groups) {
        philox_words(key, first + (uint32_t)g, site, sample, step, word + 4 * g);
    }
    const uint32_t threshold = mask->threshold;
    const float scale = mask->scale;
    for (int64_t k = 0; k < 4 * groups; k++) {
        factor[2 * k] = (word[k] & 0xffffu) >= threshold ? scale : 0.0f;
        factor[2 * k + 1] = (word[k] >> 16) >= threshold ? scale : 0.0f;
    }
}

#endif
