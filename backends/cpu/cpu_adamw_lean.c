/* adamw_lean: AdamW of a bf16 parameter without a master, with m and v in fp32, bf16 or 8-bit codes.
 *
 * Processes a block of STATE_BLOCK elements at a time: moments are converted to fp32, the update is computed by op.h's
 * formula, and each result is rounded stochastically into its place.  This file is compiled without contraction and
 * without any option that lets a compiler reorder or approximate, so that vectors of any width give the same bits.
 * Blocks share nothing, so the number of threads does not affect results either.
 */
#include "backends/cpu/cpu_rounding.h"

#include <math.h>

struct lean_memory {
    struct cpu_floats grad, param, first, second;
    uint8_t *scales; /* int8 exponents: [blocks] of m, then [blocks] of v */
    int64_t blocks;
};

/* The fp32 values of the block that is being updated. */
struct lean_block {
    float grad[STATE_BLOCK], param[STATE_BLOCK], first[STATE_BLOCK], second[STATE_BLOCK];
    int64_t begin, count;
};

static void block_update(const struct adamw_step *step, struct lean_block *block)
{
    const struct adamw_step s = *step;
    CPU_SIMD(i, block->count)
        adamw_update(&s, block->grad[i], &block->param[i], &block->first[i], &block->second[i]);
}

static void codes_load(const struct lean_memory *memory, struct lean_block *block)
{
    const int64_t k = block->begin / STATE_BLOCK;
    const uint8_t *first = (const uint8_t *)memory->first.memory + block->begin;
    const uint8_t *second = (const uint8_t *)memory->second.memory + block->begin;
    const float first_scale = state_scale((int8_t)memory->scales[k]);
    const float second_scale = state_scale((int8_t)memory->scales[memory->blocks + k]);
    CPU_SIMD(i, block->count) {
        block->first[i] = state_decode(false, first[i], first_scale);
        block->second[i] = state_decode(true, second[i], second_scale);
    }
}

/* Encodes m, or the root of v, with the block's exponent.  Inlined so that `is_v` is a constant. */
static inline __attribute__((always_inline)) void codes_store(const float *values, int64_t count,
                                                              const uint16_t *random, bool is_v, uint8_t *codes,
                                                              uint8_t *exponent)
{
    float magnitude[STATE_BLOCK], largest = 0.0f;
    CPU_OMP(omp simd reduction(max : largest))
    for (int64_t i = 0; i < count; i++) {
        magnitude[i] = state_magnitude(is_v, values[i]);
        largest = magnitude[i] > largest ? magnitude[i] : largest;
    }
    const int32_t e = state_exponent(is_v, largest);
    const float scale = state_scale(-e);
    CPU_SIMD(i, count)
        codes[i] = (uint8_t)state_encode(is_v, values[i], magnitude[i], scale, random[i]);
    *exponent = (uint8_t)(int8_t)e;
}

static void block_load(const struct lean_memory *memory, struct lean_block *block)
{
    cpu_floats_copy(memory->grad, block->begin, block->count, block->grad);
    cpu_floats_copy(memory->param, block->begin, block->count, block->param);
    if (memory->first.dtype == DTYPE_U8) {
        codes_load(memory, block);
        return;
    }
    cpu_floats_copy(memory->first, block->begin, block->count, block->first);
    cpu_floats_copy(memory->second, block->begin, block->count, block->second);
}

static void block_store(const struct lean_memory *memory, const struct rounding *rounding,
                        const struct lean_block *block)
{
    struct cpu_rounding_bits random;
    cpu_rounding_store(rounding, ROUNDING_PARAM, memory->param, block->begin, block->count, block->param);
    if (memory->first.dtype == DTYPE_U8) {
        uint8_t *exponents = memory->scales + block->begin / STATE_BLOCK;
        cpu_rounding_fill(rounding, block->begin, ROUNDING_M, &random);
        codes_store(block->first, block->count, random.bits, false, (uint8_t *)memory->first.memory + block->begin,
                    exponents);
        cpu_rounding_fill(rounding, block->begin, ROUNDING_V, &random);
        codes_store(block->second, block->count, random.bits, true, (uint8_t *)memory->second.memory + block->begin,
                    exponents + memory->blocks);
        return;
    }
    cpu_rounding_store(rounding, ROUNDING_M, memory->first, block->begin, block->count, block->first);
    cpu_rounding_store(rounding, ROUNDING_V, memory->second, block->begin, block->count, block->second);
}

static void adamw_lean_run(const struct cpu_backend *cpu, const struct op_call *call)
{
    const int64_t elements = op_elements(call, ADAMW_LEAN_PARAM);
    const struct lean_memory memory = {
        .grad = cpu_floats_of(cpu, call, ADAMW_LEAN_GRAD),
        .param = cpu_floats_of(cpu, call, ADAMW_LEAN_PARAM),
        .first = cpu_floats_of(cpu, call, ADAMW_LEAN_M),
        .second = cpu_floats_of(cpu, call, ADAMW_LEAN_V),
        .scales = cpu_operand(cpu, call, ADAMW_LEAN_SCALES),
        .blocks = state_blocks(elements),
    };
    const union scalar_word *scalars = cpu_operand(cpu, call, ADAMW_LEAN_SCALARS);
    struct adamw_step step;
    if (!cpu_adamw_step_read(cpu, call, &step))
        return;
    const struct rounding rounding = rounding_of(scalars, call->attrs.index_base);
    CPU_PARALLEL(begin, elements, STATE_BLOCK, elements) {
        struct lean_block block; /* not initialised: that would take time */
        block.begin = begin;
        block.count = min_i64(STATE_BLOCK, elements - begin);
        block_load(&memory, &block);
        block_update(&step, &block);
        block_store(&memory, &rounding, &block);
    }
}

const struct cpu_op CPU_NAME(cpu_adamw_lean) = {.run = adamw_lean_run};
