/* blend: y = alpha x + beta z.
 *
 * In blocks, with 16-bit operands converted to fp32.  Each product and the sum are rounded once, and nothing is fused,
 * so the bits match op.h on every instruction set.
 */
#include "backends/cpu/cpu_half.h"
#include "backends/cpu/cpu_kernel.h"

static void block_blend(const struct op_attrs *attrs, const float *x, const float *z, float *y, int64_t count)
{
    const float alpha = attrs->alpha, beta = attrs->beta;
    CPU_OMP(omp simd)
    for (int64_t i = 0; i < count; i++)
        y[i] = alpha * x[i] + beta * z[i];
}

static void memory_blend(const struct op_attrs *attrs, struct cpu_floats x, struct cpu_floats z, struct cpu_floats y,
                         int64_t begin, int64_t count)
{
    float buffer[3][CPU_BLOCK];
    const float *from_x = cpu_floats_read(x, begin, count, buffer[0]);
    const float *from_z = cpu_floats_read(z, begin, count, buffer[1]);
    float *to = cpu_floats_place(y, begin, buffer[2]);
    block_blend(attrs, from_x, from_z, to, count);
    cpu_floats_write(y, begin, count, to);
}

static enum gt_status blend_run(struct backend *backend, int32_t queue, const struct op_call *call)
{
    (void)queue;
    const struct cpu_floats x = cpu_floats_of(backend, call, BLEND_X), z = cpu_floats_of(backend, call, BLEND_Z);
    const struct cpu_floats y = cpu_floats_of(backend, call, BLEND_Y);
    const int64_t elements = op_elements(call, BLEND_Y);
    CPU_OMP(omp parallel for schedule(static) num_threads(cpu_threads_for(backend, elements)))
    for (int64_t begin = 0; begin < elements; begin += CPU_BLOCK)
        memory_blend(&call->attrs, x, z, y, begin, min_i64(CPU_BLOCK, elements - begin));
    return GT_OK;
}

const struct op_impl CPU_NAME(cpu_blend) = {.run = blend_run};
