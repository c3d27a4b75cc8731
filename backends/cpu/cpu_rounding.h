/* Stochastic rounding as base/bits.h defines it: random bits for many elements at once, and rounding to bf16 with them.
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

/* The random bits of one block and stream; element i uses bits[i]. */
struct cpu_rounding_bits {
    uint16_t memory[8 * CPU_ROUNDING_GROUPS];
    const uint16_t *bits;
};

/* Generates the bits of the STATE_BLOCK elements from `begin` on. */
static inline void cpu_rounding_fill(const struct rounding *rounding, int64_t begin, uint32_t stream,
                                     struct cpu_rounding_bits *out)
{
    uint32_t word[4 * CPU_ROUNDING_GROUPS];
    const uint64_t index = rounding->index_base + (uint64_t)begin, group = index / 8;
    const struct rounding own = *rounding;
    CPU_OMP(omp simd)
    for (uint32_t g = 0; g < CPU_ROUNDING_GROUPS; g++)
        rounding_words(&own, group + g, stream, word + (size_t)4 * g);
    for (int64_t k = 0; k < 4 * CPU_ROUNDING_GROUPS; k++) { /* compiled to a copy on little-endian hosts */
        out->memory[2 * k] = (uint16_t)word[k];
        out->memory[2 * k + 1] = (uint16_t)(word[k] >> 16);
    }
    out->bits = out->memory + index % 8;
}

/* Stores the values of the block from `begin` on: as they are in fp32, rounded with the bits of `stream` in bf16. */
static inline void cpu_rounding_store(const struct rounding *rounding, uint32_t stream, struct cpu_floats to,
                                      int64_t begin, int64_t count, const float *values)
{
    struct cpu_rounding_bits random;
    if (to.dtype == DTYPE_F32) {
        cpu_floats_write(to, begin, count, values);
        return;
    }
    cpu_rounding_fill(rounding, begin, stream, &random);
    uint16_t *out = (uint16_t *)to.memory + begin;
    CPU_SIMD(i, count)
        out[i] = bf16_stochastic(values[i], random.bits[i]);
}

#endif
