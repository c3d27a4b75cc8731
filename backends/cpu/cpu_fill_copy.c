/* fill: y = value; copy: y = x, or y += x.
 *
 * Elementwise in blocks whose size is fixed.
 */
#include "backends/cpu/cpu_kernel.h"

#include <string.h>

CPU_OP_PLAIN(fill)
CPU_OP_PLAIN(copy)

enum gt_status CPU_NAME(cpu_fill_run)(struct backend *backend, int32_t queue, const struct op_call *call)
{
    (void)queue;
    float *y = cpu_operand(backend, call, FILL_Y);
    const int64_t elements = cpu_elements(call, FILL_Y);
    const float value = call->attrs.value;
    CPU_OMP(omp parallel for simd schedule(static) num_threads(cpu_threads_for(backend, elements)))
    for (int64_t i = 0; i < elements; i++)
        y[i] = value;
    return GT_OK;
}

static void block_add(const float *x, float *y, int64_t count)
{
    CPU_OMP(omp simd)
    for (int64_t i = 0; i < count; i++)
        y[i] += x[i];
}

enum gt_status CPU_NAME(cpu_copy_run)(struct backend *backend, int32_t queue, const struct op_call *call)
{
    (void)queue;
    const float *x = cpu_operand(backend, call, COPY_X);
    float *y = cpu_operand(backend, call, COPY_Y);
    const int64_t elements = cpu_elements(call, COPY_X);
    const bool accumulate = cpu_accumulates(call, COPY_Y);
    CPU_OMP(omp parallel for schedule(static) num_threads(cpu_threads_for(backend, elements)))
    for (int64_t begin = 0; begin < elements; begin += CPU_BLOCK) {
        const int64_t count = cpu_min(CPU_BLOCK, elements - begin);
        if (accumulate)
            block_add(x + begin, y + begin, count);
        else
            memmove(y + begin, x + begin, (size_t)count * sizeof *y);
    }
    return GT_OK;
}
