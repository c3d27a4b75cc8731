/* muon_momentum: the moving average of the gradient, and Nesterov's look-ahead.
 *
 * In blocks of STATE_BLOCK elements, like all ops that round stochastically; fp32 momenta are updated in place.
 */
#include "backends/cpu/cpu_half.h"
#include "backends/cpu/cpu_kernel.h"
#include "backends/cpu/cpu_rounding.h"

struct momentum_memory {
    struct cpu_floats grad, momentum;
    float *ahead;
    float clip, beta, rest;
};

static void block_run(const struct momentum_memory *memory, const struct cpu_rounding *rounding, int64_t begin,
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
        .beta = call->attrs.beta1,
        .rest = 1.0f - call->attrs.beta1,
    };
    const struct cpu_rounding rounding = cpu_rounding_make(scalars, call->attrs.index_base);
    const int64_t elements = op_elements(call, MUON_MOMENTUM_U);
    if (scalars[SCALAR_FOUND_INF].i != 0) {
        memset(memory.ahead, 0, (size_t)elements * sizeof(float));
        return GT_OK;
    }
    CPU_OMP(omp parallel for schedule(static) num_threads(cpu_threads_for(backend, elements)))
    for (int64_t begin = 0; begin < elements; begin += STATE_BLOCK)
        block_run(&memory, &rounding, begin, min_i64(STATE_BLOCK, elements - begin));
    return GT_OK;
}

const struct op_impl CPU_NAME(cpu_muon_momentum) = {.run = muon_momentum_run};
