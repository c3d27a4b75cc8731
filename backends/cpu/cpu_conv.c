/* short_conv_forward, short_conv_backward and short_conv_cached: one block of columns of one sample
 * at a time.  The rows are processed in order, so that a block can keep the previous rows.
 *
 * The backward pass recomputes u.  It writes the gradient of a row of x after the last row that
 * reads it.  The weights' gradients are summed in fp64, in order of the samples.
 */
#include "backends/cpu/cpu_half.h"

#define COLUMNS 64 /* of a block */

struct conv {
    struct cpu_floats x, y, dy, cache; /* y: dx in the backward pass */
    const float *weight;               /* [W, taps] */
    const int32_t *begin;              /* NULL: 0 for all */
    int64_t taps, columns, width;      /* width: W, the first of `columns` */
    int64_t time, position;
};

/* A block's columns. x[(t + k) % taps] for k = 1 .. taps are the rows up to row t, and `dx` has the
 * gradients of these rows. */
struct block {
    int64_t first, count; /* columns */
    float x[OP_CONV_TAPS][COLUMNS], dx[OP_CONV_TAPS][COLUMNS];
    float weight[OP_CONV_TAPS][COLUMNS];
    double dweight[OP_CONV_TAPS][COLUMNS];
};

static void block_open(const struct conv *conv, int64_t index, struct block *out)
{
    out->first = index * COLUMNS;
    out->count = min_i64(COLUMNS, conv->width - out->first);
    for (int64_t j = 0; j < conv->taps; j++)
        for (int64_t c = 0; c < out->count; c++) {
            out->weight[j][c] = conv->weight[(out->first + c) * conv->taps + j];
            out->dweight[j][c] = 0.0;
        }
}

/* Fills the rows before a sample's first row, from the cache or with zeros. */
static void block_begin(const struct conv *conv, int64_t sample, struct block *block)
{
    for (int64_t j = 0; j < conv->taps; j++) {
        memset(block->x[j], 0, sizeof block->x[j]);
        memset(block->dx[j], 0, sizeof block->dx[j]);
    }
    for (int64_t j = 0; j + 1 < conv->taps && conv->position > 0; j++)
        cpu_floats_copy(conv->cache, (sample * (conv->taps - 1) + j) * conv->width + block->first,
                        block->count, block->x[(j + 1) % conv->taps]);
}

/* Returns how many rows before row t of a sample its convolution reads. */
static int64_t rows_before(const struct conv *conv, int64_t n, int64_t t)
{
    const int64_t all = conv->taps - 1;
    return conv->begin == NULL ? all : min_i64(all, t - conv->begin[n]);
}

/* Reads x of row n, which is row t of its sample, and computes u[count]. */
static void row_convolve(const struct conv *conv, struct block *block, int64_t n, int64_t t,
                         float *u)
{
    const int64_t taps = conv->taps, count = block->count, before = rows_before(conv, n, t);
    cpu_floats_copy(conv->x, n * conv->columns + block->first, count, block->x[t % taps]);
    for (int64_t c = 0; c < count; c++)
        u[c] = 0.0f;
    for (int64_t m = before; m >= 0; m--) {
        const float *x = block->x[(t + taps - m) % taps], *weight = block->weight[taps - 1 - m];
        CPU_SIMD(c, count)
            u[c] += weight[c] * x[c];
    }
}

static void row_forward(const struct conv *conv, struct block *block, int64_t n, int64_t t)
{
    float u[COLUMNS];
    const int64_t at = n * conv->columns + block->first;
    row_convolve(conv, block, n, t, u);
    CPU_SIMD(c, block->count)
        u[c] = gate_of(u[c], GATE_SILU);
    cpu_floats_write(conv->y, at, block->count, u);
}

static void row_backward(const struct conv *conv, struct block *block, int64_t n, int64_t t)
{
    float u[COLUMNS], buffer[COLUMNS];
    const int64_t taps = conv->taps, count = block->count, at = n * conv->columns + block->first,
                  before = rows_before(conv, n, t);
    const float *dy = cpu_floats_read(conv->dy, at, count, buffer);
    row_convolve(conv, block, n, t, u);
    CPU_SIMD(c, count)
        u[c] = dy[c] * gate_slope(u[c], GATE_SILU);
    memset(block->dx[t % taps], 0, sizeof block->dx[0]);
    for (int64_t m = 0; m <= before; m++) {
        const int64_t row = (t + taps - m) % taps;
        const float *x = block->x[row], *weight = block->weight[taps - 1 - m];
        float *dx = block->dx[row];
        double *dweight = block->dweight[taps - 1 - m];
        CPU_SIMD(c, count) {
            dx[c] += weight[c] * u[c];
            dweight[c] += (double)u[c] * (double)x[c];
        }
    }
    const int64_t done = t - (taps - 1);
    for (int64_t row = max_i64(done, 0); row <= t && (row == done || t == conv->time - 1); row++)
        cpu_floats_write(conv->y, (n - t + row) * conv->columns + block->first, count,
                         block->dx[row % taps]);
}

/* Stores the sample's last rows in the cache. */
static void cache_store(const struct conv *conv, int64_t sample, const struct block *block)
{
    const int64_t taps = conv->taps;
    for (int64_t j = 0; j + 1 < taps; j++)
        cpu_floats_write(conv->cache, (sample * (taps - 1) + j) * conv->width + block->first,
                         block->count, block->x[(conv->time + 1 + j) % taps]);
}

static struct conv conv_make(const struct cpu_backend *cpu, const struct op_call *call,
                             const float *weight)
{
    const bool is_backward = call->kind == OP_SHORT_CONV_BACKWARD,
               is_cached = call->kind == OP_SHORT_CONV_CACHED;
    const union scalar_word *scalars =
        is_cached ? cpu_operand(cpu, call, SHORT_CONV_CACHED_SCALARS) : NULL;
    return (struct conv){
        .x = cpu_floats_of(cpu, call,
                           is_backward ? (int32_t)SHORT_CONV_BACKWARD_X
                                       : (int32_t)SHORT_CONV_FORWARD_X),
        .y = cpu_floats_of(cpu, call,
                           is_backward ? (int32_t)SHORT_CONV_BACKWARD_DX
                           : is_cached ? (int32_t)SHORT_CONV_CACHED_Y
                                       : (int32_t)SHORT_CONV_FORWARD_Y),
        .dy = cpu_floats_of(cpu, call, SHORT_CONV_BACKWARD_DY),
        .cache = cpu_floats_of(cpu, call, SHORT_CONV_CACHED_CACHE),
        .weight = weight,
        .begin = is_cached ? NULL : cpu_operand(cpu, call, SHORT_CONV_FORWARD_FIRST),
        .taps = call->attrs.taps,
        .columns = op_columns(call, SHORT_CONV_FORWARD_X),
        .width = op_elements(call, SHORT_CONV_FORWARD_WEIGHT) / call->attrs.taps,
        .time = call->attrs.time,
        .position = is_cached ? scalars[SCALAR_POSITION].i : 0,
    };
}

/* Writes the gradients of a block's weights, or adds them. */
static void weights_store(const struct cpu_backend *cpu, const struct op_call *call,
                          const struct conv *conv, const struct block *block)
{
    const struct cpu_floats out = cpu_floats_of(cpu, call, SHORT_CONV_BACKWARD_DWEIGHT);
    const bool adds = op_accumulates(call, SHORT_CONV_BACKWARD_DWEIGHT);
    for (int64_t c = 0; c < block->count; c++) {
        float sum[COLUMNS];
        const int64_t at = (block->first + c) * conv->taps;
        if (adds)
            cpu_floats_copy(out, at, conv->taps, sum);
        for (int64_t j = 0; j < conv->taps; j++)
            sum[j] = (float)((adds ? (double)sum[j] : 0.0) + block->dweight[j][c]);
        cpu_floats_write(out, at, conv->taps, sum);
    }
}

/* Copies the columns after the convolved ones. */
static void rest_copy(const struct conv *conv, struct cpu_floats from, int64_t rows)
{
    for (int64_t n = 0; n < rows && conv->columns > conv->width; n++)
        cpu_floats_move(conv->y, n * conv->columns + conv->width, from,
                        n * conv->columns + conv->width, conv->columns - conv->width);
}

static size_t conv_workspace_bytes(const struct cpu_backend *cpu, const struct op_call *call)
{
    const struct operand *weight = &call->operand[SHORT_CONV_FORWARD_WEIGHT];
    (void)cpu;
    return weight->dtype == DTYPE_F32 ? 0 : (size_t)operand_elements(weight) * sizeof(float);
}

static void conv_run(const struct cpu_backend *cpu, const struct op_call *call)
{
    const size_t bytes = conv_workspace_bytes(cpu, call);
    const struct cpu_floats weight = cpu_floats_of(cpu, call, SHORT_CONV_FORWARD_WEIGHT);
    const int64_t weights = op_elements(call, SHORT_CONV_FORWARD_WEIGHT);
    const struct conv conv = conv_make(
        cpu, call,
        cpu_floats_read(weight, 0, weights, bytes > 0 ? cpu_workspace(cpu, call, bytes) : NULL));
    const int64_t rows = op_rows(call, SHORT_CONV_FORWARD_X),
                  blocks = size_ceil_div(conv.width, COLUMNS);
    const bool is_backward = call->kind == OP_SHORT_CONV_BACKWARD;
    CPU_PARALLEL(index, blocks, 1, rows * conv.width) {
        struct block block;
        block_open(&conv, index, &block);
        for (int64_t n = 0; n < rows; n++) {
            const int64_t t = n % conv.time;
            if (t == 0)
                block_begin(&conv, n / conv.time, &block);
            if (is_backward)
                row_backward(&conv, &block, n, t);
            else
                row_forward(&conv, &block, n, t);
            if (t == conv.time - 1 && call->kind == OP_SHORT_CONV_CACHED)
                cache_store(&conv, n / conv.time, &block);
        }
        if (is_backward)
            weights_store(cpu, call, &conv, &block);
    }
    rest_copy(&conv, is_backward ? conv.dy : conv.x, rows);
}

const struct cpu_op CPU_NAME(cpu_short_conv_forward) = {.workspace_bytes = conv_workspace_bytes,
                                                        .run = conv_run};
const struct cpu_op CPU_NAME(cpu_short_conv_backward) = {.workspace_bytes = conv_workspace_bytes,
                                                         .run = conv_run};
const struct cpu_op CPU_NAME(cpu_short_conv_cached) = {.workspace_bytes = conv_workspace_bytes,
                                                       .run = conv_run};
