/* Stochastic rounding as ops/op.h defines it: random bits for many elements at once, and rounding to bf16 with them.
 *
 * Used by the files that are compiled without contraction.  Everything here is integer arithmetic; the exact references
 * of tests/ops prove it.
 */
#ifndef GPT_TRAIN_CPU_CPU_ROUNDING_H
#define GPT_TRAIN_CPU_CPU_ROUNDING_H

#include <float.h>

#include "backends/cpu/cpu_half.h"
#include "backends/cpu/cpu_philox.h"
#include "base/rng.h"
#include "ops/op.h"

_Static_assert(FLT_EVAL_METHOD == 0, "wider intermediates would round twice");

/* Groups of eight that cover a block of STATE_BLOCK elements at any start. */
#define CPU_ROUNDING_GROUPS (STATE_BLOCK / 8 + 1)

struct cpu_rounding {
    struct philox_key key;
    uint32_t step;
    uint64_t index_base;
};

/* The random bits of one block and stream; element i uses bits[i]. */
struct cpu_rounding_bits {
    uint16_t memory[8 * CPU_ROUNDING_GROUPS];
    const uint16_t *bits;
};

static inline struct cpu_rounding cpu_rounding_make(const union scalar_word *scalars, int64_t index_base)
{
    const uint64_t seed = (uint64_t)scalars[SCALAR_SEED_HI].u << 32 | scalars[SCALAR_SEED_LO].u;
    return (struct cpu_rounding){
        .key = philox_key_make(seed, RNG_STATES), .step = scalars[SCALAR_STEP].u, .index_base = (uint64_t)index_base};
}

/* Generates the bits of the STATE_BLOCK elements from `begin` on. */
static inline void cpu_rounding_fill(const struct cpu_rounding *rounding, int64_t begin, uint32_t stream,
                                     struct cpu_rounding_bits *out)
{
    uint32_t word[4 * CPU_ROUNDING_GROUPS];
    const uint64_t index = rounding->index_base + (uint64_t)begin, group = index / 8;
    const struct philox_key key = rounding->key;
    const uint32_t step = rounding->step;
    CPU_OMP(omp simd)
    for (uint32_t g = 0; g < CPU_ROUNDING_GROUPS; g++) {
        const uint64_t counter = group + g;
        philox_words(key, (uint32_t)counter, (uint32_t)(counter >> 32), step, stream, word + (size_t)4 * g);
    }
    for (int64_t k = 0; k < 4 * CPU_ROUNDING_GROUPS; k++) { /* compiled to a copy on little-endian hosts */
        out->memory[2 * k] = (uint16_t)word[k];
        out->memory[2 * k + 1] = (uint16_t)(word[k] >> 16);
    }
    out->bits = out->memory + index % 8;
}

/* out[i] = values[i] rounded to bf16 with random[i]; branch-free. */
static inline void cpu_rounding_bf16(const float *values, const uint16_t *random, uint16_t *out, int64_t count)
{
    CPU_SIMD(i, count) {
        const uint32_t bits = cpu_bits_from_float(values[i]);
        const uint32_t special = bits >> 16 | ((bits & 0x7fffffu) != 0 ? 0x40u : 0u);
        const uint32_t rounded = (bits + random[i]) >> 16;
        out[i] = (uint16_t)((bits & 0x7f800000u) == 0x7f800000u ? special : rounded);
    }
}

/* Stores the values of the block from `begin` on: as they are in fp32, rounded with the bits of `stream` in bf16. */
static inline void cpu_rounding_store(const struct cpu_rounding *rounding, uint32_t stream, struct cpu_floats to,
                                      int64_t begin, int64_t count, const float *values)
{
    struct cpu_rounding_bits random;
    if (to.dtype == DTYPE_F32) {
        cpu_floats_write(to, begin, count, values);
        return;
    }
    cpu_rounding_fill(rounding, begin, stream, &random);
    cpu_rounding_bf16(values, random.bits, (uint16_t *)to.memory + begin, count);
}

#endif
