/* gradient_round: adds a micro-step's fp32 gradient to the bf16 sum, or stores it there, rounded stochastically.
 *
 * In blocks of STATE_BLOCK elements, which share no random bits, so neither the number of threads nor the width of
 * vectors affects results.  There is one addition per element, so nothing can be fused.
 */
#include "backends/cpu/cpu_half.h"
#include "backends/cpu/cpu_kernel.h"
#include "backends/cpu/cpu_rounding.h"

static void block_round(const struct cpu_rounding *rounding, uint32_t stream, const float *x, uint16_t *y,
                        bool accumulate, int64_t begin, int64_t count)
{
    float sum[STATE_BLOCK];
    struct cpu_rounding_bits random;
    const float *values = x + begin;
    if (accumulate) {
        cpu_bf16_load(y + begin, sum, count);
        CPU_OMP(omp simd)
        for (int64_t i = 0; i < count; i++)
            sum[i] = sum[i] + x[begin + i];
        values = sum;
    }
    cpu_rounding_fill(rounding, begin, stream, &random);
    cpu_rounding_bf16(values, random.bits, y + begin, count);
}

static enum gt_status gradient_round_run(struct backend *backend, int32_t queue, const struct op_call *call)
{
    (void)queue;
    const float *x = cpu_operand(backend, call, GRADIENT_ROUND_X);
    const union scalar_word *scalars = cpu_operand(backend, call, GRADIENT_ROUND_SCALARS);
    uint16_t *y = cpu_operand(backend, call, GRADIENT_ROUND_Y);
    const int64_t elements = op_elements(call, GRADIENT_ROUND_Y);
    const bool accumulate = op_accumulates(call, GRADIENT_ROUND_Y);
    const struct cpu_rounding rounding = cpu_rounding_make(scalars, call->attrs.index_base);
    const uint32_t stream = ROUNDING_GRADIENT + 4u * scalars[SCALAR_MICRO_STEP].u;
    CPU_OMP(omp parallel for schedule(static) num_threads(cpu_threads_for(backend, elements)))
    for (int64_t begin = 0; begin < elements; begin += STATE_BLOCK)
        block_round(&rounding, stream, x, y, accumulate, begin, min_i64(STATE_BLOCK, elements - begin));
    return GT_OK;
}

const struct op_impl CPU_NAME(cpu_gradient_round) = {.run = gradient_round_run};
