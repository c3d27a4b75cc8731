/* layernorm and rmsnorm, forward and backward, one row at a time; bias_backward.
 *
 * Their operands have the same numbers (ops/layernorm.c); rmsnorm is a layernorm whose mean is
 * absent, and counts as 0.
 *
 * Statistics and the two means of the backward pass are summed in fp64.  dgain and dbias, and the
 * gradient of a bias, are sums over all rows.  The rows are divided into parts whose number follows
 * from the shape, each part sums in fp64 in its own strip of the workspace, and the parts are added
 * in order, so that the result does not depend on the number of threads.  16-bit rows are converted
 * into rows of the workspace, at most three per thread; gain and bias once.  The workspace also has
 * a row of ones for an absent gain, or the gain plus its offset.
 */
#include "backends/cpu/cpu_half.h"

#include <math.h>

/* fp32 rows in the workspace: SHARED_ROWS for gain and bias, then FORWARD_ROWS or BACKWARD_ROWS per
 * thread. */
#define SHARED_ROWS 2
#define FORWARD_ROWS 1
#define BACKWARD_ROWS 3

struct layernorm_gradient {
    struct cpu_floats dy, x, dx;
    const float *gain, *mean, *rstd; /* mean: NULL if absent */
    bool accumulate, has_bias;
    int64_t channels;
};

/* Returns the floats of workspace; 0 if there is a gain without an offset and all operands are
 * fp32. */
static size_t rows_floats(const struct cpu_backend *cpu, const struct op_call *call, int32_t gain,
                          size_t rows)
{
    const int64_t channels = op_columns(call, 0);
    bool converts = !call->operand[gain].present || call->attrs.gain_offset != 0.0f;
    for (int32_t slot = 0; slot < OP_OPERANDS_MAX; slot++)
        converts |= call->operand[slot].present && call->operand[slot].dtype != DTYPE_F32;
    return converts ? (SHARED_ROWS + (size_t)cpu->threads * rows) * cpu_row_floats(channels) : 0;
}

/* Returns row `index` of the workspace, or NULL if nothing is converted. */
static float *scratch_row(float *scratch, size_t row_floats, size_t index)
{
    return row_floats > 0 ? scratch + index * row_floats : NULL;
}

/* Returns the gain as fp32: the operand's memory, or a row in `scratch`. */
static const float *gain_read(const struct cpu_backend *cpu, const struct op_call *call,
                              int32_t slot, float *scratch)
{
    const struct cpu_floats gain = cpu_floats_of(cpu, call, slot);
    const int64_t channels = op_columns(call, 0);
    const float *values = gain.memory != NULL ? cpu_floats_read(gain, 0, channels, scratch) : NULL;
    if (values != NULL && call->attrs.gain_offset == 0.0f)
        return values;
    for (int64_t c = 0; c < channels; c++)
        scratch[c] = values != NULL ? values[c] + call->attrs.gain_offset : 1.0f;
    return scratch;
}

/* `out_mean` is NULL for a norm without a mean. */
static void row_normalise(const float *x, const float *gain, const float *bias, int64_t channels,
                          float epsilon, float *y, float *out_mean, float *out_rstd)
{
    double sum = 0.0, square = 0.0;
    if (out_mean != NULL) {
        CPU_SIMD_SUM(c, channels, sum)
            sum += (double)x[c];
    }
    const double mean = sum / (double)channels;
    CPU_SIMD_SUM(c, channels, square)
        square += ((double)x[c] - mean) * ((double)x[c] - mean);
    const float rstd = (float)(1.0 / sqrt(square / (double)channels + (double)epsilon));
    const float centre = (float)mean;
    if (bias != NULL) {
        CPU_SIMD(c, channels)
            y[c] = (x[c] - centre) * rstd * gain[c] + bias[c];
    } else {
        CPU_SIMD(c, channels)
            y[c] = (x[c] - centre) * rstd * gain[c];
    }
    if (out_mean != NULL)
        *out_mean = centre;
    *out_rstd = rstd;
}

static size_t forward_workspace_bytes(const struct cpu_backend *cpu, const struct op_call *call)
{
    return rows_floats(cpu, call, LAYERNORM_FORWARD_GAIN, FORWARD_ROWS) * sizeof(float);
}

static void forward_run(const struct cpu_backend *cpu, const struct op_call *call)
{
    const struct cpu_floats x = cpu_floats_of(cpu, call, LAYERNORM_FORWARD_X);
    const struct cpu_floats y = cpu_floats_of(cpu, call, LAYERNORM_FORWARD_Y);
    const struct cpu_floats biases = cpu_floats_of(cpu, call, LAYERNORM_FORWARD_BIAS);
    float *mean = cpu_operand(cpu, call, LAYERNORM_FORWARD_MEAN);
    float *rstd = cpu_operand(cpu, call, LAYERNORM_FORWARD_RSTD);
    const int64_t rows = call->operand[LAYERNORM_FORWARD_X].dims[0];
    const int64_t channels = call->operand[LAYERNORM_FORWARD_X].dims[1];
    const float epsilon = call->attrs.epsilon;
    const size_t scratch_bytes = forward_workspace_bytes(cpu, call);
    const size_t row_floats = scratch_bytes > 0 ? cpu_row_floats(channels) : 0;
    float *scratch = scratch_bytes > 0 ? cpu_workspace(cpu, call, scratch_bytes) : NULL;
    const float *gain = gain_read(cpu, call, LAYERNORM_FORWARD_GAIN, scratch), *bias = NULL;
    if (biases.memory != NULL)
        bias = cpu_floats_read(biases, 0, channels, scratch_row(scratch, row_floats, 1));
    CPU_PARALLEL(n, rows, 1, rows * channels) {
        float *buffer = scratch_row(scratch, row_floats, SHARED_ROWS + (size_t)cpu_thread_index());
        const float *in = cpu_floats_read(x, n * channels, channels, buffer);
        float *out = cpu_floats_place(y, n * channels, buffer);
        row_normalise(in, gain, bias, channels, epsilon, out, mean != NULL ? mean + n : NULL,
                      rstd + n);
        cpu_floats_write(y, n * channels, channels, out);
    }
}

/* Computes dx of rows begin .. end - 1, through the three rows of `scratch` if they are 16-bit, and
 * their contributions to dgain[channels], followed by dbias[channels]. */
static void part_gradient(const struct layernorm_gradient *g, int64_t begin, int64_t end,
                          double *dgain, float *scratch, size_t row_floats)
{
    const int64_t channels = g->channels;
    const float *gain = g->gain;
    double *dbias = dgain + channels;
    memset(dgain, 0, 2 * (size_t)channels * sizeof *dgain);
    for (int64_t n = begin; n < end; n++) {
        const int64_t first = n * channels;
        const float *dy = cpu_floats_read(g->dy, first, channels, scratch);
        const float *x =
            cpu_floats_read(g->x, first, channels, scratch_row(scratch, row_floats, 1));
        float *buffer = scratch_row(scratch, row_floats, 2);
        float *dx = g->accumulate ? cpu_floats_edit(g->dx, first, channels, buffer)
                                  : cpu_floats_place(g->dx, first, buffer);
        const float mean = g->mean != NULL ? g->mean[n] : 0.0f, rstd = g->rstd[n];
        double sum = 0.0, product = 0.0;
        CPU_SIMD_SUM(c, channels, sum, product) {
            const float normal = (x[c] - mean) * rstd, weighted = dy[c] * gain[c];
            sum += (double)weighted;
            product += (double)weighted * (double)normal;
            dgain[c] += (double)dy[c] * (double)normal;
        }
        if (g->has_bias) {
            CPU_SIMD(c, channels)
                dbias[c] += (double)dy[c];
        }
        const float mean_weighted = g->mean != NULL ? (float)(sum / (double)channels) : 0.0f;
        const float mean_product = (float)(product / (double)channels);
        if (g->accumulate) {
            CPU_SIMD(c, channels)
                dx[c] +=
                    rstd * (dy[c] * gain[c] - mean_weighted - (x[c] - mean) * rstd * mean_product);
        } else {
            CPU_SIMD(c, channels)
                dx[c] =
                    rstd * (dy[c] * gain[c] - mean_weighted - (x[c] - mean) * rstd * mean_product);
        }
        cpu_floats_write(g->dx, first, channels, dx);
    }
}

static size_t parts_bytes(const struct op_call *call)
{
    const int64_t *dims = call->operand[LAYERNORM_BACKWARD_DY].dims;
    return (size_t)cpu_parts(dims[0]) * 2 * (size_t)dims[1] * sizeof(double);
}

/* The sums of the parts, followed by the fp32 rows. */
static size_t backward_workspace_bytes(const struct cpu_backend *cpu, const struct op_call *call)
{
    return parts_bytes(call) +
           rows_floats(cpu, call, LAYERNORM_BACKWARD_GAIN, BACKWARD_ROWS) * sizeof(float);
}

static void backward_run(const struct cpu_backend *cpu, const struct op_call *call)
{
    const int64_t rows = call->operand[LAYERNORM_BACKWARD_DY].dims[0];
    const int64_t channels = call->operand[LAYERNORM_BACKWARD_DY].dims[1];
    const size_t workspace_bytes = backward_workspace_bytes(cpu, call);
    const size_t row_floats = workspace_bytes > parts_bytes(call) ? cpu_row_floats(channels) : 0;
    double *partial = cpu_workspace(cpu, call, workspace_bytes);
    float *scratch = (float *)(void *)((char *)partial + parts_bytes(call));
    const struct layernorm_gradient gradient = {
        .dy = cpu_floats_of(cpu, call, LAYERNORM_BACKWARD_DY),
        .x = cpu_floats_of(cpu, call, LAYERNORM_BACKWARD_X),
        .dx = cpu_floats_of(cpu, call, LAYERNORM_BACKWARD_DX),
        .gain = gain_read(cpu, call, LAYERNORM_BACKWARD_GAIN, scratch),
        .mean = cpu_operand(cpu, call, LAYERNORM_BACKWARD_MEAN),
        .rstd = cpu_operand(cpu, call, LAYERNORM_BACKWARD_RSTD),
        .accumulate = op_accumulates(call, LAYERNORM_BACKWARD_DX),
        .has_bias = call->operand[LAYERNORM_BACKWARD_DBIAS].present,
        .channels = channels,
    };
    const int64_t parts = cpu_parts(rows);
    CPU_PARALLEL(part, parts, 1, rows * channels) {
        float *buffer = scratch_row(scratch, row_floats,
                                    SHARED_ROWS + (size_t)cpu_thread_index() * BACKWARD_ROWS);
        part_gradient(&gradient, cpu_part_begin(rows, parts, part),
                      cpu_part_begin(rows, parts, part + 1), partial + part * 2 * channels, buffer,
                      row_floats);
    }
    cpu_parts_add(cpu, call, LAYERNORM_BACKWARD_DGAIN, partial, 2 * channels, parts);
    cpu_parts_add(cpu, call, LAYERNORM_BACKWARD_DBIAS, partial + channels, 2 * channels, parts);
}

static size_t bias_backward_workspace_bytes(const struct cpu_backend *cpu,
                                            const struct op_call *call)
{
    (void)cpu;
    const int64_t *dims = call->operand[BIAS_BACKWARD_DY].dims;
    return (size_t)cpu_parts(dims[0]) * (size_t)dims[1] * sizeof(double);
}

/* sum[columns] += the row of dy that begins at element `first`. */
static void row_add(double *sum, struct cpu_floats dy, int64_t first, int64_t columns)
{
    float buffer[CPU_BLOCK];
    for (int64_t begin = 0; begin < columns; begin += CPU_BLOCK) {
        const int64_t count = min_i64(CPU_BLOCK, columns - begin);
        const float *row = cpu_floats_read(dy, first + begin, count, buffer);
        double *to = sum + begin;
        CPU_SIMD(c, count)
            to[c] += (double)row[c];
    }
}

static void bias_backward_run(const struct cpu_backend *cpu, const struct op_call *call)
{
    const struct cpu_floats dy = cpu_floats_of(cpu, call, BIAS_BACKWARD_DY);
    const int64_t rows = call->operand[BIAS_BACKWARD_DY].dims[0],
                  columns = call->operand[BIAS_BACKWARD_DY].dims[1];
    const int64_t parts = cpu_parts(rows);
    double *partial = cpu_workspace(cpu, call, (size_t)parts * (size_t)columns * sizeof(double));
    CPU_PARALLEL(part, parts, 1, rows * columns) {
        double *sum = partial + part * columns;
        memset(sum, 0, (size_t)columns * sizeof *sum);
        const int64_t end = cpu_part_begin(rows, parts, part + 1);
        for (int64_t n = cpu_part_begin(rows, parts, part); n < end; n++)
            row_add(sum, dy, n * columns, columns);
    }
    cpu_parts_add(cpu, call, BIAS_BACKWARD_DBIAS, partial, columns, parts);
}

#define NORM(name)                                                       \
    const struct cpu_op CPU_NAME(cpu_##name##_forward) = {               \
        .workspace_bytes = forward_workspace_bytes, .run = forward_run}; \
    const struct cpu_op CPU_NAME(cpu_##name##_backward) = {              \
        .workspace_bytes = backward_workspace_bytes, .run = backward_run};
NORM(layernorm)
NORM(rmsnorm)
const struct cpu_op CPU_NAME(cpu_bias_backward) = {.workspace_bytes = bias_backward_workspace_bytes,
                                                   .run = bias_backward_run};
