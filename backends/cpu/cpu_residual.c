/* residual: r = x + y.
 *
 * Elementwise in blocks of fixed size; one pass, memory-bound.  r may be x or y.
 */
#include "backends/cpu/cpu_half.h"
#include "backends/cpu/cpu_kernel.h"

static void block_add(const float *x, const float *y, float *r, int64_t count)
{
    CPU_OMP(omp simd)
    for (int64_t i = 0; i < count; i++)
        r[i] = x[i] + y[i];
}

static enum gt_status residual_run(struct backend *backend, int32_t queue, const struct op_call *call)
{
    (void)queue;
    const struct cpu_floats x = cpu_floats_of(backend, call, RESIDUAL_X);
    const struct cpu_floats y = cpu_floats_of(backend, call, RESIDUAL_Y);
    const struct cpu_floats r = cpu_floats_of(backend, call, RESIDUAL_R);
    const int64_t elements = op_elements(call, RESIDUAL_R);
    CPU_OMP(omp parallel for schedule(static) num_threads(cpu_threads_for(backend, elements)))
    for (int64_t begin = 0; begin < elements; begin += CPU_BLOCK) {
        float buffer[2][CPU_BLOCK];
        const int64_t count = min_i64(CPU_BLOCK, elements - begin);
        const float *a = cpu_floats_read(x, begin, count, buffer[0]), *b = cpu_floats_read(y, begin, count, buffer[1]);
        float *sum = cpu_floats_place(r, begin, buffer[0]);
        block_add(a, b, sum, count);
        cpu_floats_write(r, begin, count, sum);
    }
    return GT_OK;
}

const struct op_impl CPU_NAME(cpu_residual) = {.run = residual_run};
