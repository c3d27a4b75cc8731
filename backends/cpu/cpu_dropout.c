/* dropout: y = x times a mask that is a pure function of seed, step, sample, site and element (ops/op.h).
 *
 * Elements are numbered through all rows of a sample.  Blocks start at multiples of eight of these numbers, so that the
 * eight elements that share a Philox block are never in different blocks.  y may be x.  The op is also its own
 * backward.
 */
#include "backends/cpu/cpu_half.h"
#include "backends/cpu/cpu_kernel.h"
#include "backends/cpu/cpu_philox.h"

/* Processes elements offset .. offset + count - 1; the first is number `first` in its sample. */
static void block_drop(const struct cpu_mask *mask, struct cpu_floats x, struct cpu_floats y, int64_t offset,
                       int64_t first, int64_t count)
{
    float factor[8 * CPU_MASK_GROUPS], buffer[8 * CPU_MASK_GROUPS];
    for (int64_t begin = 0; begin < count; begin += 8 * CPU_MASK_GROUPS) {
        const int64_t width = min_i64(8 * CPU_MASK_GROUPS, count - begin);
        cpu_mask_fill(mask, (first + begin) / 8, size_ceil_div(width, 8), factor);
        const float *in = cpu_floats_read(x, offset + begin, width, buffer);
        float *out = cpu_floats_place(y, offset + begin, buffer);
        CPU_OMP(omp simd)
        for (int64_t i = 0; i < width; i++)
            out[i] = factor[i] != 0.0f ? in[i] * factor[i] : 0.0f;
        cpu_floats_write(y, offset + begin, width, out);
    }
}

static enum gt_status dropout_run(struct backend *backend, int32_t queue, const struct op_call *call)
{
    (void)queue;
    const struct cpu_floats x = cpu_floats_of(backend, call, DROPOUT_X);
    const union scalar_word *scalars = cpu_operand(backend, call, DROPOUT_SCALARS);
    const struct cpu_floats y = cpu_floats_of(backend, call, DROPOUT_Y);
    const int64_t sample_elements = call->attrs.time * call->operand[DROPOUT_X].dims[1];
    const int64_t samples = op_elements(call, DROPOUT_X) / sample_elements;
    const int64_t blocks = size_ceil_div(sample_elements, CPU_BLOCK);
    struct cpu_mask shared = cpu_mask_make(scalars, call->attrs.dropout);
    shared.site = (uint32_t)call->attrs.site;
    CPU_OMP(omp parallel for schedule(static) num_threads(cpu_threads_for(backend, samples * sample_elements)))
    for (int64_t item = 0; item < samples * blocks; item++) {
        const int64_t sample = item / blocks, first = item % blocks * CPU_BLOCK;
        struct cpu_mask mask = shared;
        mask.sample = scalars[SCALAR_SAMPLE_BASE].u + (uint32_t)sample;
        const int64_t offset = sample * sample_elements + first;
        block_drop(&mask, x, y, offset, first, min_i64(CPU_BLOCK, sample_elements - first));
    }
    return GT_OK;
}

const struct op_impl CPU_NAME(cpu_dropout) = {.run = dropout_run};
