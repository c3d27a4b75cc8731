/* adamw: one pass over gradient, parameter and both moments, bound by memory.
 *
 * Elementwise in blocks; what is the same for all elements is taken out of the loop.  Skipped as a whole where
 * clip_factor found an infinity.
 */
#include "backends/cpu/cpu_kernel.h"

#include <math.h>

CPU_OP_PLAIN(adamw)

struct adamw_step {
    float clip, learning_rate, beta1, beta2, rest1, rest2, correction1, correction2, epsilon, weight_decay;
};

static void block_update(const struct adamw_step *step, const float *grad, float *param, float *first, float *second,
                         int64_t count)
{
    const struct adamw_step s = *step;
    CPU_OMP(omp simd)
    for (int64_t i = 0; i < count; i++) {
        const float g = grad[i] * s.clip;
        const float m = s.beta1 * first[i] + s.rest1 * g;
        const float v = s.beta2 * second[i] + s.rest2 * g * g;
        const float p = param[i];
        first[i] = m;
        second[i] = v;
        param[i] =
            p - s.learning_rate * ((m / s.correction1) / (sqrtf(v / s.correction2) + s.epsilon) + s.weight_decay * p);
    }
}

enum gt_status CPU_NAME(cpu_adamw_run)(struct backend *backend, int32_t queue, const struct op_call *call)
{
    (void)queue;
    const float *grad = cpu_operand(backend, call, ADAMW_GRAD);
    const union scalar_word *scalars = cpu_operand(backend, call, ADAMW_SCALARS);
    const float *corrections = cpu_operand(backend, call, ADAMW_CORRECTIONS);
    float *param = cpu_operand(backend, call, ADAMW_PARAM);
    float *first = cpu_operand(backend, call, ADAMW_M);
    float *second = cpu_operand(backend, call, ADAMW_V);
    const int64_t elements = cpu_elements(call, ADAMW_PARAM), rows = call->operand[ADAMW_CORRECTIONS].dims[0];
    if (scalars[SCALAR_FOUND_INF].i != 0)
        return GT_OK;
    assert(scalars[SCALAR_ADAM_STEP].i >= 1);
    const int64_t row = cpu_min(cpu_max(scalars[SCALAR_ADAM_STEP].i, 1), rows) - 1;
    const struct op_attrs *attrs = &call->attrs;
    const struct adamw_step step = {
        .clip = scalars[SCALAR_CLIP].f,
        .learning_rate = scalars[SCALAR_LEARNING_RATE].f,
        .beta1 = attrs->beta1,
        .beta2 = attrs->beta2,
        .rest1 = 1.0f - attrs->beta1,
        .rest2 = 1.0f - attrs->beta2,
        .correction1 = corrections[2 * row],
        .correction2 = corrections[2 * row + 1],
        .epsilon = attrs->epsilon,
        .weight_decay = attrs->weight_decay,
    };
    CPU_OMP(omp parallel for schedule(static) num_threads(cpu_threads_for(backend, elements)))
    for (int64_t begin = 0; begin < elements; begin += CPU_BLOCK)
        block_update(&step, grad + begin, param + begin, first + begin, second + begin,
                     cpu_min(CPU_BLOCK, elements - begin));
    return GT_OK;
}
