/* fill: y = value; copy: y = x, or y += x, from any float dtype to any.
 *
 * Elementwise in blocks of fixed size.  A value is rounded once, to the dtype of y; between equal dtypes, y = x copies
 * the bytes.
 */
#include "backends/cpu/cpu_half.h"
#include "backends/cpu/cpu_kernel.h"

#include <string.h>

static enum gt_status fill_run(struct backend *backend, int32_t queue, const struct op_call *call)
{
    (void)queue;
    const struct cpu_floats y = cpu_floats_of(backend, call, FILL_Y);
    const int64_t elements = op_elements(call, FILL_Y);
    const float value = call->attrs.value;
    CPU_OMP(omp parallel for schedule(static) num_threads(cpu_threads_for(backend, elements)))
    for (int64_t begin = 0; begin < elements; begin += CPU_BLOCK) {
        float buffer[CPU_BLOCK];
        const int64_t count = min_i64(CPU_BLOCK, elements - begin);
        float *to = cpu_floats_place(y, begin, buffer);
        for (int64_t i = 0; i < count; i++)
            to[i] = value;
        cpu_floats_write(y, begin, count, to);
    }
    return GT_OK;
}

static void block_add(struct cpu_floats x, struct cpu_floats y, int64_t begin, int64_t count)
{
    float buffer[2][CPU_BLOCK];
    const float *from = cpu_floats_read(x, begin, count, buffer[0]);
    float *to = cpu_floats_edit(y, begin, count, buffer[1]);
    CPU_OMP(omp simd)
    for (int64_t i = 0; i < count; i++)
        to[i] += from[i];
    cpu_floats_write(y, begin, count, to);
}

static void block_copy(struct cpu_floats x, struct cpu_floats y, int64_t begin, int64_t count)
{
    float buffer[CPU_BLOCK];
    if (x.dtype == y.dtype) {
        const size_t bytes = dtype_size_bytes(x.dtype), offset = (size_t)begin * bytes;
        memmove((char *)y.memory + offset, (const char *)x.memory + offset, (size_t)count * bytes);
        return;
    }
    cpu_floats_write(y, begin, count, cpu_floats_read(x, begin, count, cpu_floats_place(y, begin, buffer)));
}

static enum gt_status copy_run(struct backend *backend, int32_t queue, const struct op_call *call)
{
    (void)queue;
    const struct cpu_floats x = cpu_floats_of(backend, call, COPY_X), y = cpu_floats_of(backend, call, COPY_Y);
    const int64_t elements = op_elements(call, COPY_X);
    const bool accumulate = op_accumulates(call, COPY_Y);
    CPU_OMP(omp parallel for schedule(static) num_threads(cpu_threads_for(backend, elements)))
    for (int64_t begin = 0; begin < elements; begin += CPU_BLOCK) {
        const int64_t count = min_i64(CPU_BLOCK, elements - begin);
        if (accumulate)
            block_add(x, y, begin, count);
        else
            block_copy(x, y, begin, count);
    }
    return GT_OK;
}

const struct op_impl CPU_NAME(cpu_fill) = {.run = fill_run};
const struct op_impl CPU_NAME(cpu_copy) = {.run = copy_run};
