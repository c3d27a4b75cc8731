/* Muon's elementwise ops: momentum, normalisation before the iteration, and the step.
 *
 * muon_momentum: the moving average of the gradient, and Nesterov's look-ahead; fp32 momenta are updated in place.
 * muon_normalize: y = x / (sqrt(sum) + 1e-7), so that no singular value of y is above 1.  The root and the quotients
 * are correctly rounded; a 16-bit y is rounded once more, to nearest.
 * muon_step: applies the orthogonalised direction and the decay to a weight.  With a master, the update applies to the
 * master, and the weight is the master rounded to nearest; otherwise to the weight itself.
 * bf16 momenta and weights without a master are rounded stochastically, in blocks of STATE_BLOCK elements.
 */
#include "backends/cpu/cpu_half.h"
#include "backends/cpu/cpu_kernel.h"
#include "backends/cpu/cpu_rounding.h"

struct momentum_memory {
    struct cpu_floats grad, momentum;
    float *ahead;
    float clip, beta, rest;
};

static void momentum_block(const struct momentum_memory *memory, const struct cpu_rounding *rounding, int64_t begin,
                           int64_t count)
{
    float buffer[2][STATE_BLOCK];
    struct cpu_rounding_bits random;
    const float *grad = cpu_floats_read(memory->grad, begin, count, buffer[0]);
    float *m = cpu_floats_edit(memory->momentum, begin, count, buffer[1]), *u = memory->ahead + begin;
    const float clip = memory->clip, beta = memory->beta, rest = memory->rest;
    CPU_OMP(omp simd)
    for (int64_t i = 0; i < count; i++) {
        const float g = grad[i] * clip;
        const float next = beta * m[i] + rest * g;
        m[i] = next;
        u[i] = beta * next + rest * g;
    }
    if (memory->momentum.dtype != DTYPE_BF16)
        return;
    cpu_rounding_fill(rounding, begin, ROUNDING_M, &random);
    cpu_rounding_bf16(m, random.bits, (uint16_t *)memory->momentum.memory + begin, count);
}

static enum gt_status muon_momentum_run(struct backend *backend, int32_t queue, const struct op_call *call)
{
    (void)queue;
    const union scalar_word *scalars = cpu_operand(backend, call, MUON_MOMENTUM_SCALARS);
    const struct momentum_memory memory = {
        .grad = cpu_floats_of(backend, call, MUON_MOMENTUM_GRAD),
        .momentum = cpu_floats_of(backend, call, MUON_MOMENTUM_M),
        .ahead = cpu_operand(backend, call, MUON_MOMENTUM_U),
        .clip = scalars[SCALAR_CLIP].f,
        .beta = scalars[SCALAR_MUON_MOMENTUM].f,
        .rest = 1.0f - scalars[SCALAR_MUON_MOMENTUM].f,
    };
    const struct cpu_rounding rounding = cpu_rounding_make(scalars, call->attrs.index_base);
    const int64_t elements = op_elements(call, MUON_MOMENTUM_U);
    if (scalars[SCALAR_FOUND_INF].i != 0) {
        memset(memory.ahead, 0, (size_t)elements * sizeof(float));
        return GT_OK;
    }
    CPU_OMP(omp parallel for schedule(static) num_threads(cpu_threads_for(backend, elements)))
    for (int64_t begin = 0; begin < elements; begin += STATE_BLOCK)
        momentum_block(&memory, &rounding, begin, min_i64(STATE_BLOCK, elements - begin));
    return GT_OK;
}

static void normalize_block(float below, const float *x, struct cpu_floats y, int64_t begin, int64_t count)
{
    float buffer[CPU_BLOCK];
    float *to = cpu_floats_place(y, begin, buffer);
    CPU_OMP(omp simd)
    for (int64_t i = 0; i < count; i++)
        to[i] = x[begin + i] / below;
    cpu_floats_write(y, begin, count, to);
}

static enum gt_status muon_normalize_run(struct backend *backend, int32_t queue, const struct op_call *call)
{
    (void)queue;
    const float *x = cpu_operand(backend, call, MUON_NORMALIZE_X);
    const float *sum = cpu_operand(backend, call, MUON_NORMALIZE_SUM);
    const struct cpu_floats y = cpu_floats_of(backend, call, MUON_NORMALIZE_Y);
    const float below = sqrtf(*sum) + MUON_NORM_EPSILON;
    const int64_t elements = op_elements(call, MUON_NORMALIZE_Y);
    CPU_OMP(omp parallel for schedule(static) num_threads(cpu_threads_for(backend, elements)))
    for (int64_t begin = 0; begin < elements; begin += CPU_BLOCK)
        normalize_block(below, x, y, begin, min_i64(CPU_BLOCK, elements - begin));
    return GT_OK;
}

struct step_memory {
    struct cpu_floats direction, param, master;
    float rate, scale, decay;
};

static void step_block(const struct step_memory *memory, const struct cpu_rounding *rounding, int64_t begin,
                       int64_t count)
{
    float buffer[2][STATE_BLOCK];
    struct cpu_rounding_bits random;
    const bool mastered = memory->master.memory != NULL;
    const struct cpu_floats weights = mastered ? memory->master : memory->param;
    const float *o = cpu_floats_read(memory->direction, begin, count, buffer[0]);
    float *p = cpu_floats_edit(weights, begin, count, buffer[1]);
    const float rate = memory->rate, scale = memory->scale, decay = memory->decay;
    CPU_OMP(omp simd)
    for (int64_t i = 0; i < count; i++)
        p[i] = p[i] - rate * (scale * o[i] + decay * p[i]);
    if (mastered || memory->param.dtype == DTYPE_F32) {
        cpu_floats_write(memory->param, begin, count, p);
        return;
    }
    cpu_rounding_fill(rounding, begin, ROUNDING_PARAM, &random);
    cpu_rounding_bf16(p, random.bits, (uint16_t *)memory->param.memory + begin, count);
}

static enum gt_status muon_step_run(struct backend *backend, int32_t queue, const struct op_call *call)
{
    (void)queue;
    const union scalar_word *scalars = cpu_operand(backend, call, MUON_STEP_SCALARS);
    const struct step_memory memory = {
        .direction = cpu_floats_of(backend, call, MUON_STEP_O),
        .param = cpu_floats_of(backend, call, MUON_STEP_PARAM),
        .master = cpu_floats_of(backend, call, MUON_STEP_MASTER),
        .rate = scalars[SCALAR_LEARNING_RATE].f * call->attrs.alpha,
        .scale = call->attrs.value,
        .decay = call->attrs.weight_decay,
    };
    const struct cpu_rounding rounding = cpu_rounding_make(scalars, call->attrs.index_base);
    const int64_t elements = op_elements(call, MUON_STEP_PARAM);
    if (scalars[SCALAR_FOUND_INF].i != 0)
        return GT_OK;
    CPU_OMP(omp parallel for schedule(static) num_threads(cpu_threads_for(backend, elements)))
    for (int64_t begin = 0; begin < elements; begin += STATE_BLOCK)
        step_block(&memory, &rounding, begin, min_i64(STATE_BLOCK, elements - begin));
    return GT_OK;
}

const struct op_impl CPU_NAME(cpu_muon_momentum) = {.run = muon_momentum_run};
const struct op_impl CPU_NAME(cpu_muon_normalize) = {.run = muon_normalize_run};
const struct op_impl CPU_NAME(cpu_muon_step) = {.run = muon_step_run};
