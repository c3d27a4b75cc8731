/* embed_forward and embed_backward: rows of two tables, gathered and added; and their gradients.
 *
 * The backward pass reads rows grouped by token id (the host sorts them), so that one thread writes
 * each row of dwte, in the order of the list, without atomics.  Sums run in fp64 over a strip of
 * columns and are rounded once.
 */
#include "backends/cpu/cpu_half.h"

#define STRIP 128 /* columns summed at a time */

static void embed_forward_run(const struct cpu_backend *cpu, const struct op_call *call)
{
    const int32_t *ids = cpu_operand(cpu, call, EMBED_FORWARD_IDS);
    const struct cpu_floats wte = cpu_floats_of(cpu, call, EMBED_FORWARD_WTE);
    const struct cpu_floats wpe = cpu_floats_of(cpu, call, EMBED_FORWARD_WPE);
    const union scalar_word *scalars = cpu_operand(cpu, call, EMBED_FORWARD_SCALARS);
    const struct cpu_floats y = cpu_floats_of(cpu, call, EMBED_FORWARD_Y);
    const int32_t *first = cpu_operand(cpu, call, EMBED_FORWARD_FIRST);
    const int64_t rows = call->operand[EMBED_FORWARD_Y].dims[0],
                  channels = call->operand[EMBED_FORWARD_Y].dims[1];
    const int64_t time = call->attrs.time, position = scalars[SCALAR_POSITION].i;
    assert(wpe.memory == NULL ||
           (position >= 0 && position + time <= call->operand[EMBED_FORWARD_WPE].dims[0]));
    CPU_PARALLEL(n, rows, 1, rows * channels) {
        assert(ids[n] >= 0 && ids[n] < call->operand[EMBED_FORWARD_WTE].dims[0]);
        const int64_t row = position + n % time - (first != NULL ? first[n] : 0);
        float buffer[2][CPU_BLOCK];
        for (int64_t begin = 0; begin < channels; begin += CPU_BLOCK) {
            const int64_t count = min_i64(CPU_BLOCK, channels - begin), at = n * channels + begin;
            const float *token = cpu_floats_read(wte, ids[n] * channels + begin, count, buffer[0]);
            if (wpe.memory == NULL) {
                cpu_floats_write(y, at, count, token);
                continue;
            }
            const float *place = cpu_floats_read(wpe, row * channels + begin, count, buffer[1]);
            float *out = cpu_floats_place(y, at, buffer[0]);
            CPU_SIMD(c, count)
                out[c] = token[c] + place[c];
            cpu_floats_write(y, at, count, out);
        }
    }
}

/* Rows of dy: the rows in `list`, or first, first + stride, ... if `list` is NULL.  With `starts`,
 * only rows at `position` of their document count. */
struct row_set {
    struct cpu_floats dy;
    const int32_t *list, *starts;
    int64_t first, stride, count, time, position;
};

/* Sets row `to` of out[*,channels] to the sum of the rows, or adds the sum to it. */
static void rows_sum(struct cpu_floats out, int64_t to, bool accumulate, const struct row_set *rows,
                     int64_t channels)
{
    double sum[STRIP];
    float buffer[STRIP];
    for (int64_t begin = 0; begin < channels; begin += STRIP) {
        const int64_t width = min_i64(STRIP, channels - begin), at = to * channels + begin;
        const float *old = accumulate ? cpu_floats_read(out, at, width, buffer) : NULL;
        for (int64_t c = 0; c < width; c++)
            sum[c] = accumulate ? (double)old[c] : 0.0;
        for (int64_t i = 0; i < rows->count; i++) {
            const int64_t n = rows->list != NULL ? rows->list[i] : rows->first + i * rows->stride;
            if (rows->starts != NULL && n % rows->time - rows->starts[n] != rows->position)
                continue;
            const float *row = cpu_floats_read(rows->dy, n * channels + begin, width, buffer);
            CPU_SIMD(c, width)
                sum[c] += (double)row[c];
        }
        float *total = cpu_floats_place(out, at, buffer);
        for (int64_t c = 0; c < width; c++)
            total[c] = (float)sum[c];
        cpu_floats_write(out, at, width, total);
    }
}

static void embed_backward_run(const struct cpu_backend *cpu, const struct op_call *call)
{
    const struct cpu_floats dy = cpu_floats_of(cpu, call, EMBED_BACKWARD_DY);
    const int32_t *ids = cpu_operand(cpu, call, EMBED_BACKWARD_IDS);
    const int32_t *order = cpu_operand(cpu, call, EMBED_BACKWARD_ORDER);
    const int32_t *starts = cpu_operand(cpu, call, EMBED_BACKWARD_STARTS);
    const struct cpu_floats dwte = cpu_floats_of(cpu, call, EMBED_BACKWARD_DWTE);
    const struct cpu_floats dwpe = cpu_floats_of(cpu, call, EMBED_BACKWARD_DWPE);
    const int64_t rows = call->operand[EMBED_BACKWARD_DY].dims[0],
                  channels = call->operand[EMBED_BACKWARD_DY].dims[1];
    const int64_t time = call->attrs.time,
                  positions = dwpe.memory != NULL ? op_rows(call, EMBED_BACKWARD_DWPE) : 0;
    const int32_t *first = cpu_operand(cpu, call, EMBED_BACKWARD_FIRST);
    const bool accumulate = op_accumulates(call, EMBED_BACKWARD_DWPE);
    const int threads = cpu_threads_for(cpu, rows * channels);
    (void)threads; /* used only with OpenMP */
    const int64_t groups = starts[0];
    assert(groups >= 0 && groups + 2 <= call->operand[EMBED_BACKWARD_STARTS].dims[0]);
    CPU_OMP(omp parallel for schedule(dynamic, 8) num_threads(threads))
    for (int64_t k = 0; k < groups; k++) {
        const int32_t begin = starts[1 + k], end = starts[2 + k];
        assert(begin < end && end <= rows);
        const struct row_set rows_of_id = {.dy = dy, .list = order + begin, .count = end - begin};
        rows_sum(dwte, ids[order[begin]], true, &rows_of_id, channels);
    }
    CPU_OMP(omp parallel for schedule(static) num_threads(threads))
    for (int64_t t = 0; t < positions; t++) {
        struct row_set rows_at = {
            .dy = dy, .first = t, .stride = time, .count = t < time ? rows / time : 0};
        if (first != NULL && t < time)
            rows_at = (struct row_set){.dy = dy,
                                       .starts = first,
                                       .first = t,
                                       .stride = 1,
                                       .count = rows - t,
                                       .time = time,
                                       .position = t};
        if (t < time || !accumulate)
            rows_sum(dwpe, t, accumulate, &rows_at, channels);
    }
}

const struct cpu_op CPU_NAME(cpu_embed_forward) = {.run = embed_forward_run};
const struct cpu_op CPU_NAME(cpu_embed_backward) = {.run = embed_backward_run};
