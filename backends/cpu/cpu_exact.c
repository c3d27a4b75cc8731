/* The exact ops: blend, gradient_round, sum_parts, adamw_lean and those of muon (src/ops,
 * ops/op.h).
 *
 * Each operation is rounded once and nothing is fused, so the bits match op.h on every instruction
 * set: this file is compiled without contraction and without any option that lets a compiler
 * reorder or approximate.  Rounding is stochastic (base/bits.h) in blocks of STATE_BLOCK elements,
 * which share no random bits: neither the number of threads nor the width of vectors affects
 * results.
 */
#include "backends/cpu/cpu_half.h"
#include "backends/cpu/cpu_philox.h"

#include <float.h>
#include <math.h>

_Static_assert(FLT_EVAL_METHOD == 0, "wider intermediates would round twice");

/* Groups of eight that cover a block of STATE_BLOCK elements at any start. */
#define CPU_ROUNDING_GROUPS (STATE_BLOCK / 8 + 1)

/* The random bits of one block and stream; element i uses bits[i]. */
struct cpu_rounding_bits {
    uint16_t memory[8 * CPU_ROUNDING_GROUPS];
    const uint16_t *bits;
};

/* Generates the bits of the STATE_BLOCK elements from `begin` on. */
static inline void cpu_rounding_fill(const struct rounding *rounding, int64_t begin,
                                     uint32_t stream, struct cpu_rounding_bits *out)
{
    uint32_t word[4 * CPU_ROUNDING_GROUPS];
    const uint64_t index = rounding->index_base + (uint64_t)begin, group = index / 8;
    const struct rounding own = *rounding;
    CPU_OMP(omp simd)
    for (uint32_t g = 0; g < CPU_ROUNDING_GROUPS; g++)
        rounding_words(&own, group + g, stream, word + (size_t)4 * g);
    for (int64_t k = 0; k < 4 * CPU_ROUNDING_GROUPS;
         k++) { /* compiled to a copy on little-endian hosts */
        out->memory[2 * k] = (uint16_t)word[k];
        out->memory[2 * k + 1] = (uint16_t)(word[k] >> 16);
    }
    out->bits = out->memory + index % 8;
}

/* Stores the values of the block from `begin` on: as they are in fp32, rounded with the bits of
 * `stream` in bf16. */
static inline void cpu_rounding_store(const struct rounding *rounding, uint32_t stream,
                                      struct cpu_floats to, int64_t begin, int64_t count,
                                      const float *values)
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

static void blend(const struct op_attrs *attrs, const float *const *in, float *out, int64_t count)
{
    const float alpha = attrs->alpha, beta = attrs->beta, *x = in[0], *z = in[1];
    CPU_SIMD(i, count)
        out[i] = alpha * x[i] + beta * z[i];
}

CPU_ELEMENTWISE(blend)

static void gradient_round_run(const struct cpu_backend *cpu, const struct op_call *call)
{
    const float *x = cpu_operand(cpu, call, GRADIENT_ROUND_X);
    const union scalar_word *scalars = cpu_operand(cpu, call, GRADIENT_ROUND_SCALARS);
    const struct cpu_floats y = cpu_floats_of(cpu, call, GRADIENT_ROUND_Y);
    const int64_t elements = op_elements(call, GRADIENT_ROUND_Y);
    const struct rounding rounding = rounding_of(scalars, call->attrs.index_base);
    const uint32_t stream = ROUNDING_GRADIENT + 4u * scalars[SCALAR_MICRO_STEP].u;
    CPU_PARALLEL(begin, elements, STATE_BLOCK, elements) {
        float buffer[STATE_BLOCK];
        const int64_t count = min_i64(STATE_BLOCK, elements - begin);
        const float *values = x + begin;
        if (op_accumulates(call, GRADIENT_ROUND_Y)) {
            float *sum = cpu_floats_edit(y, begin, count, buffer);
            CPU_SIMD(i, count)
                sum[i] = sum[i] + x[begin + i];
            values = sum;
        }
        cpu_rounding_store(&rounding, stream, y, begin, count, values);
    }
}

/* Each block is read before it is written: y may be x. */
static void sum_parts_run(const struct cpu_backend *cpu, const struct op_call *call)
{
    const struct cpu_floats x = cpu_floats_of(cpu, call, SUM_PARTS_X),
                            y = cpu_floats_of(cpu, call, SUM_PARTS_Y);
    const struct operand *others = &call->operand[SUM_PARTS_OTHERS];
    const struct cpu_floats rest = others->present ? cpu_floats_of(cpu, call, SUM_PARTS_OTHERS) : x;
    const int64_t parts = others->present ? others->dims[0] + 1 : 1,
                  elements = op_elements(call, SUM_PARTS_X);
    CPU_PARALLEL(begin, elements, CPU_BLOCK, elements) {
        float buffer[CPU_BLOCK], sum[CPU_BLOCK];
        const int64_t count = min_i64(CPU_BLOCK, elements - begin);
        bool any = op_accumulates(call, SUM_PARTS_Y);
        if (any)
            cpu_floats_copy(y, begin, count, sum);
        for (int64_t p = 0; p < parts; p++, any = true) {
            const int64_t row = p - (p > call->attrs.from);
            const float *part = p == call->attrs.from
                                    ? cpu_floats_read(x, begin, count, buffer)
                                    : cpu_floats_read(rest, row * elements + begin, count, buffer);
            if (!any)
                memcpy(sum, part, (size_t)count * sizeof *sum);
            CPU_SIMD(i, any ? count : 0)
                sum[i] += part[i];
        }
        cpu_floats_write(y, begin, count, sum);
    }
}

/* The look-ahead u is computed from the unrounded momentum. */
static void muon_momentum_run(const struct cpu_backend *cpu, const struct op_call *call)
{
    const union scalar_word *scalars = cpu_operand(cpu, call, MUON_MOMENTUM_SCALARS);
    const struct cpu_floats grads = cpu_floats_of(cpu, call, MUON_MOMENTUM_GRAD);
    const struct cpu_floats momenta = cpu_floats_of(cpu, call, MUON_MOMENTUM_M);
    const struct rounding rounding = rounding_of(scalars, call->attrs.index_base);
    const int64_t elements = op_elements(call, MUON_MOMENTUM_U);
    float *ahead = cpu_operand(cpu, call, MUON_MOMENTUM_U);
    if (scalars[SCALAR_FOUND_INF].i != 0) {
        memset(ahead, 0, (size_t)elements * sizeof *ahead);
        return;
    }
    CPU_PARALLEL(begin, elements, STATE_BLOCK, elements) {
        float buffer[2][STATE_BLOCK];
        const int64_t count = min_i64(STATE_BLOCK, elements - begin);
        const float *grad = cpu_floats_read(grads, begin, count, buffer[0]);
        float *m = cpu_floats_edit(momenta, begin, count, buffer[1]), *u = ahead + begin;
        const float clip = scalars[SCALAR_CLIP].f, beta = scalars[SCALAR_MUON_MOMENTUM].f,
                    rest = 1.0f - beta;
        CPU_SIMD(i, count) {
            const float g = grad[i] * clip;
            const float next = beta * m[i] + rest * g;
            m[i] = next;
            u[i] = beta * next + rest * g;
        }
        cpu_rounding_store(&rounding, ROUNDING_M, momenta, begin, count, m);
    }
}

static void muon_normalize_run(const struct cpu_backend *cpu, const struct op_call *call)
{
    const float *x = cpu_operand(cpu, call, MUON_NORMALIZE_X),
                *sum = cpu_operand(cpu, call, MUON_NORMALIZE_SUM);
    const struct cpu_floats y = cpu_floats_of(cpu, call, MUON_NORMALIZE_Y);
    const int64_t elements = op_elements(call, MUON_NORMALIZE_Y);
    CPU_PARALLEL(begin, elements, CPU_BLOCK, elements) {
        float buffer[CPU_BLOCK], *to = cpu_floats_place(y, begin, buffer);
        const int64_t count = min_i64(CPU_BLOCK, elements - begin);
        const float below = sqrtf(*sum) + MUON_NORM_EPSILON;
        CPU_SIMD(i, count)
            to[i] = x[begin + i] / below;
        cpu_floats_write(y, begin, count, to);
    }
}

/* With a master, the update applies to the master, and the weight is the master rounded to nearest.
 */
static void muon_step_run(const struct cpu_backend *cpu, const struct op_call *call)
{
    const union scalar_word *scalars = cpu_operand(cpu, call, MUON_STEP_SCALARS);
    const struct cpu_floats directions = cpu_floats_of(cpu, call, MUON_STEP_O);
    const struct cpu_floats param = cpu_floats_of(cpu, call, MUON_STEP_PARAM);
    const struct cpu_floats master = cpu_floats_of(cpu, call, MUON_STEP_MASTER);
    const struct rounding rounding = rounding_of(scalars, call->attrs.index_base);
    const int64_t elements = op_elements(call, MUON_STEP_PARAM);
    if (scalars[SCALAR_FOUND_INF].i != 0)
        return;
    CPU_PARALLEL(begin, elements, STATE_BLOCK, elements) {
        float buffer[2][STATE_BLOCK];
        const int64_t count = min_i64(STATE_BLOCK, elements - begin);
        const float *o = cpu_floats_read(directions, begin, count, buffer[0]);
        float *p = cpu_floats_edit(master.memory != NULL ? master : param, begin, count, buffer[1]);
        const float rate = scalars[SCALAR_LEARNING_RATE].f * call->attrs.alpha,
                    scale = call->attrs.value;
        const float decay = call->attrs.weight_decay;
        CPU_SIMD(i, count)
            p[i] = p[i] - rate * (scale * o[i] + decay * p[i]);
        if (master.memory != NULL)
            cpu_floats_write(param, begin, count, p);
        else
            cpu_rounding_store(&rounding, ROUNDING_PARAM, param, begin, count, p);
    }
}

/* ---- adamw_lean: AdamW of a bf16 parameter without a master, with m and v in fp32, bf16 or 8-bit
 * codes ---- */

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
                                                              const uint16_t *random, bool is_v,
                                                              uint8_t *codes, uint8_t *exponent)
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
    cpu_rounding_store(rounding, ROUNDING_PARAM, memory->param, block->begin, block->count,
                       block->param);
    if (memory->first.dtype == DTYPE_U8) {
        uint8_t *exponents = memory->scales + block->begin / STATE_BLOCK;
        cpu_rounding_fill(rounding, block->begin, ROUNDING_M, &random);
        codes_store(block->first, block->count, random.bits, false,
                    (uint8_t *)memory->first.memory + block->begin, exponents);
        cpu_rounding_fill(rounding, block->begin, ROUNDING_V, &random);
        codes_store(block->second, block->count, random.bits, true,
                    (uint8_t *)memory->second.memory + block->begin, exponents + memory->blocks);
        return;
    }
    cpu_rounding_store(rounding, ROUNDING_M, memory->first, block->begin, block->count,
                       block->first);
    cpu_rounding_store(rounding, ROUNDING_V, memory->second, block->begin, block->count,
                       block->second);
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

const struct cpu_op CPU_NAME(cpu_gradient_round) = {.run = gradient_round_run};
const struct cpu_op CPU_NAME(cpu_sum_parts) = {.run = sum_parts_run};
const struct cpu_op CPU_NAME(cpu_muon_momentum) = {.run = muon_momentum_run};
const struct cpu_op CPU_NAME(cpu_muon_normalize) = {.run = muon_normalize_run};
const struct cpu_op CPU_NAME(cpu_muon_step) = {.run = muon_step_run};
const struct cpu_op CPU_NAME(cpu_adamw_lean) = {.run = adamw_lean_run};
