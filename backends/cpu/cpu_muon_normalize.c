/* muon_normalize: y = x / (sqrt(sum) + 1e-7), so that no singular value of y is above 1.
 *
 * The root and the quotients are correctly rounded; a 16-bit y is rounded once more, to nearest.
 */
#include "backends/cpu/cpu_half.h"
#include "backends/cpu/cpu_kernel.h"

static void block_normalize(float below, const float *x, struct cpu_floats y, int64_t begin, int64_t count)
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
        block_normalize(below, x, y, begin, min_i64(CPU_BLOCK, elements - begin));
    return GT_OK;
}

const struct op_impl CPU_NAME(cpu_muon_normalize) = {.run = muon_normalize_run};
