/* The exact ops except adamw_lean: blend, gradient_round, sum_parts and those of muon (src/ops, ops/op.h).
 *
 * Each operation is rounded once and nothing is fused, so the bits match op.h on every instruction set.  Rounding is
 * stochastic in blocks of STATE_BLOCK elements, which share no random bits: neither the number of threads nor the width
 * of vectors affects results.
 */
#include "backends/cpu/cpu_rounding.h"

#include <math.h>

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
    const struct cpu_floats x = cpu_floats_of(cpu, call, SUM_PARTS_X), y = cpu_floats_of(cpu, call, SUM_PARTS_Y);
    const struct operand *others = &call->operand[SUM_PARTS_OTHERS];
    const struct cpu_floats rest = others->present ? cpu_floats_of(cpu, call, SUM_PARTS_OTHERS) : x;
    const int64_t parts = others->present ? others->dims[0] + 1 : 1, elements = op_elements(call, SUM_PARTS_X);
    CPU_PARALLEL(begin, elements, CPU_BLOCK, elements) {
        float buffer[CPU_BLOCK], sum[CPU_BLOCK];
        const int64_t count = min_i64(CPU_BLOCK, elements - begin);
        bool any = op_accumulates(call, SUM_PARTS_Y);
        if (any)
            cpu_floats_copy(y, begin, count, sum);
        for (int64_t p = 0; p < parts; p++, any = true) {
            const int64_t row = p - (p > call->attrs.from);
            const float *part = p == call->attrs.from ? cpu_floats_read(x, begin, count, buffer)
                                                      : cpu_floats_read(rest, row * elements + begin, count, buffer);
            if (!any)
                memcpy(sum, part, (size_t)count * sizeof *sum);
            CPU_SIMD(i, any ? count : 0)
                sum[i] += part[i];
        }
        cpu_floats_write(y, begin, count, sum);
    }
}

/* The look-ahead u is made from the unrounded momentum. */
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
        const float clip = scalars[SCALAR_CLIP].f, beta = scalars[SCALAR_MUON_MOMENTUM].f, rest = 1.0f - beta;
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
    const float *x = cpu_operand(cpu, call, MUON_NORMALIZE_X), *sum = cpu_operand(cpu, call, MUON_NORMALIZE_SUM);
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

/* With a master, the update applies to the master, and the weight is the master rounded to nearest. */
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
        const float rate = scalars[SCALAR_LEARNING_RATE].f * call->attrs.alpha, scale = call->attrs.value;
        const float decay = call->attrs.weight_decay;
        CPU_SIMD(i, count)
            p[i] = p[i] - rate * (scale * o[i] + decay * p[i]);
        if (master.memory != NULL)
            cpu_floats_write(param, begin, count, p);
        else
            cpu_rounding_store(&rounding, ROUNDING_PARAM, param, begin, count, p);
    }
}

const struct cpu_op CPU_NAME(cpu_gradient_round) = {.run = gradient_round_run};
const struct cpu_op CPU_NAME(cpu_sum_parts) = {.run = sum_parts_run};
const struct cpu_op CPU_NAME(cpu_muon_momentum) = {.run = muon_momentum_run};
const struct cpu_op CPU_NAME(cpu_muon_normalize) = {.run = muon_normalize_run};
const struct cpu_op CPU_NAME(cpu_muon_step) = {.run = muon_step_run};
