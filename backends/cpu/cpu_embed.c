/* embed_forward and embed_backward: rows of two tables, gathered and added; and their gradients.
 *
 * Backward takes the rows grouped by token id (the host sorts them), so that each row of dwte is written by one thread,
 * in the order of the list: no atomics.  Sums run in fp64 over a strip of columns and are rounded once.
 */
#include "backends/cpu/cpu_kernel.h"

#define STRIP 128 /* columns summed at a time */

CPU_OP_PLAIN(embed_forward)
CPU_OP_PLAIN(embed_backward)

enum gt_status CPU_NAME(cpu_embed_forward_run)(struct backend *backend, int32_t queue, const struct op_call *call)
{
    (void)queue;
    const int32_t *ids = cpu_operand(backend, call, EMBED_FORWARD_IDS);
    const float *wte = cpu_operand(backend, call, EMBED_FORWARD_WTE);
    const float *wpe = cpu_operand(backend, call, EMBED_FORWARD_WPE);
    const union scalar_word *scalars = cpu_operand(backend, call, EMBED_FORWARD_SCALARS);
    float *y = cpu_operand(backend, call, EMBED_FORWARD_Y);
    const int64_t rows = call->operand[EMBED_FORWARD_Y].dims[0], channels = call->operand[EMBED_FORWARD_Y].dims[1];
    const int64_t time = call->attrs.time, position = scalars[SCALAR_POSITION].i;
    assert(position >= 0 && position + time <= call->operand[EMBED_FORWARD_WPE].dims[0]);
    CPU_OMP(omp parallel for schedule(static) num_threads(cpu_threads_for(backend, rows * channels)))
    for (int64_t n = 0; n < rows; n++) {
        assert(ids[n] >= 0 && ids[n] < call->operand[EMBED_FORWARD_WTE].dims[0]);
        const float *token = wte + ids[n] * channels, *place = wpe + (position + n % time) * channels;
        float *out = y + n * channels;
        CPU_OMP(omp simd)
        for (int64_t c = 0; c < channels; c++)
            out[c] = token[c] + place[c];
    }
    return GT_OK;
}

/* out[channels] (+)= the sum of dy[list[i]] over i, or of dy[first + i * stride] where there is no list. */
static void rows_sum(float *out, bool accumulate, const float *dy, int64_t channels, const int32_t *list, int64_t first,
                     int64_t stride, int64_t count)
{
    double sum[STRIP];
    for (int64_t begin = 0; begin < channels; begin += STRIP) {
        const int64_t width = cpu_min(STRIP, channels - begin);
        for (int64_t c = 0; c < width; c++)
            sum[c] = accumulate ? (double)out[begin + c] : 0.0;
        for (int64_t i = 0; i < count; i++) {
            const float *row = dy + (list != NULL ? list[i] : first + i * stride) * channels + begin;
            CPU_OMP(omp simd)
            for (int64_t c = 0; c < width; c++)
                sum[c] += (double)row[c];
        }
        for (int64_t c = 0; c < width; c++)
            out[begin + c] = (float)sum[c];
    }
}

enum gt_status CPU_NAME(cpu_embed_backward_run)(struct backend *backend, int32_t queue, const struct op_call *call)
{
    (void)queue;
    const float *dy = cpu_operand(backend, call, EMBED_BACKWARD_DY);
    const int32_t *ids = cpu_operand(backend, call, EMBED_BACKWARD_IDS);
    const int32_t *order = cpu_operand(backend, call, EMBED_BACKWARD_ORDER);
    const int32_t *starts = cpu_operand(backend, call, EMBED_BACKWARD_STARTS);
    float *dwte = cpu_operand(backend, call, EMBED_BACKWARD_DWTE);
    float *dwpe = cpu_operand(backend, call, EMBED_BACKWARD_DWPE);
    const int64_t rows = call->operand[EMBED_BACKWARD_DY].dims[0], channels = call->operand[EMBED_BACKWARD_DY].dims[1];
    const int64_t time = call->attrs.time, positions = call->operand[EMBED_BACKWARD_DWPE].dims[0];
    const bool accumulate = cpu_accumulates(call, EMBED_BACKWARD_DWPE);
    const int threads = cpu_threads_for(backend, rows * channels);
    (void)threads; /* only OpenMP looks at it */
    const int64_t groups = starts[0];
    assert(groups >= 0 && groups + 2 <= call->operand[EMBED_BACKWARD_STARTS].dims[0]);
    CPU_OMP(omp parallel for schedule(dynamic, 8) num_threads(threads))
    for (int64_t k = 0; k < groups; k++) {
        const int32_t begin = starts[1 + k], end = starts[2 + k];
        assert(begin < end && end <= rows);
        rows_sum(dwte + ids[order[begin]] * channels, true, dy, channels, order + begin, 0, 0, end - begin);
    }
    CPU_OMP(omp parallel for schedule(static) num_threads(threads))
    for (int64_t t = 0; t < positions; t++) {
        if (t < time || !accumulate)
            rows_sum(dwpe + t * channels, accumulate, dy, channels, NULL, t, time, t < time ? rows / time : 0);
    }
    return GT_OK;
}
