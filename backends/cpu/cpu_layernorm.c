/* layernorm_forward and layernorm_backward, one row at a time.
 *
 * Statistics and the two means of the backward are summed in fp64.  dgain and dbias are sums over all rows: the rows
 * are cut into parts whose number follows from the shape, each part sums in fp64 in its own strip of the workspace, and
 * the parts are added in order, so that the result does not depend on the number of threads.
 */
#include "backends/cpu/cpu_kernel.h"

#include <math.h>
#include <string.h>

CPU_OP_PLAIN(layernorm_forward)
CPU_SUPPORTS_ANY(layernorm_backward)

struct layernorm_gradient {
    const float *dy, *x, *gain, *mean, *rstd;
    float *dx;
    bool accumulate;
    int64_t channels;
};

static void row_normalise(const float *x, const float *gain, const float *bias, int64_t channels, float epsilon,
                          float *y, float *out_mean, float *out_rstd)
{
    double sum = 0.0, square = 0.0;
    CPU_OMP(omp simd reduction(+ : sum))
    for (int64_t c = 0; c < channels; c++)
        sum += (double)x[c];
    const double mean = sum / (double)channels;
    CPU_OMP(omp simd reduction(+ : square))
    for (int64_t c = 0; c < channels; c++)
        square += ((double)x[c] - mean) * ((double)x[c] - mean);
    const float rstd = (float)(1.0 / sqrt(square / (double)channels + (double)epsilon));
    const float centre = (float)mean;
    if (bias != NULL) {
        CPU_OMP(omp simd)
        for (int64_t c = 0; c < channels; c++)
            y[c] = (x[c] - centre) * rstd * gain[c] + bias[c];
    } else {
        CPU_OMP(omp simd)
        for (int64_t c = 0; c < channels; c++)
            y[c] = (x[c] - centre) * rstd * gain[c];
    }
    *out_mean = centre;
    *out_rstd = rstd;
}

enum gt_status CPU_NAME(cpu_layernorm_forward_run)(struct backend *backend, int32_t queue, const struct op_call *call)
{
    (void)queue;
    const float *x = cpu_operand(backend, call, LAYERNORM_FORWARD_X);
    const float *gain = cpu_operand(backend, call, LAYERNORM_FORWARD_GAIN);
    const float *bias = cpu_operand(backend, call, LAYERNORM_FORWARD_BIAS);
    float *y = cpu_operand(backend, call, LAYERNORM_FORWARD_Y);
    float *mean = cpu_operand(backend, call, LAYERNORM_FORWARD_MEAN);
    float *rstd = cpu_operand(backend, call, LAYERNORM_FORWARD_RSTD);
    const int64_t rows = call->operand[LAYERNORM_FORWARD_X].dims[0];
    const int64_t channels = call->operand[LAYERNORM_FORWARD_X].dims[1];
    const float epsilon = call->attrs.epsilon;
    CPU_OMP(omp parallel for schedule(static) num_threads(cpu_threads_for(backend, rows * channels)))
    for (int64_t n = 0; n < rows; n++)
        row_normalise(x + n * channels, gain, bias, channels, epsilon, y + n * channels, mean + n, rstd + n);
    return GT_OK;
}

/* dx of row n, and its share of dgain[channels] and dbias[channels] (both fp64). */
static void row_gradient(const struct layernorm_gradient *g, int64_t n, double *dgain, double *dbias)
{
    const int64_t channels = g->channels;
    const float *dy = g->dy + n * channels, *x = g->x + n * channels, *gain = g->gain;
    float *dx = g->dx + n * channels;
    const float mean = g->mean[n], rstd = g->rstd[n];
    double sum = 0.0, product = 0.0;
    CPU_OMP(omp simd reduction(+ : sum, product))
    for (int64_t c = 0; c < channels; c++) {
        const float normal = (x[c] - mean) * rstd, weighted = dy[c] * gain[c];
        sum += (double)weighted;
        product += (double)weighted * (double)normal;
        dgain[c] += (double)dy[c] * (double)normal;
        dbias[c] += (double)dy[c];
    }
    const float mean_weighted = (float)(sum / (double)channels), mean_product = (float)(product / (double)channels);
    if (g->accumulate) {
        CPU_OMP(omp simd)
        for (int64_t c = 0; c < channels; c++)
            dx[c] += rstd * (dy[c] * gain[c] - mean_weighted - (x[c] - mean) * rstd * mean_product);
    } else {
        CPU_OMP(omp simd)
        for (int64_t c = 0; c < channels; c++)
            dx[c] = rstd * (dy[c] * gain[c] - mean_weighted - (x[c] - mean) * rstd * mean_product);
    }
}

/* out[channels] (+)= the sum over parts of partial[part][2 * channels], in their order. */
static void parts_add(float *out, bool accumulate, const double *partial, int64_t parts, int64_t channels)
{
    for (int64_t c = 0; c < channels; c++) {
        double sum = accumulate ? (double)out[c] : 0.0;
        for (int64_t part = 0; part < parts; part++)
            sum += partial[part * 2 * channels + c];
        out[c] = (float)sum;
    }
}

size_t CPU_NAME(cpu_layernorm_backward_workspace_bytes)(const struct backend *backend, const struct op_call *call)
{
    (void)backend;
    const int64_t *dims = call->operand[LAYERNORM_BACKWARD_DY].dims;
    return (size_t)cpu_parts(dims[0]) * 2 * (size_t)dims[1] * sizeof(double);
}

enum gt_status CPU_NAME(cpu_layernorm_backward_run)(struct backend *backend, int32_t queue, const struct op_call *call)
{
    (void)queue;
    const int64_t rows = call->operand[LAYERNORM_BACKWARD_DY].dims[0];
    const int64_t channels = call->operand[LAYERNORM_BACKWARD_DY].dims[1];
    const struct layernorm_gradient gradient = {
        .dy = cpu_operand(backend, call, LAYERNORM_BACKWARD_DY),
        .x = cpu_operand(backend, call, LAYERNORM_BACKWARD_X),
        .gain = cpu_operand(backend, call, LAYERNORM_BACKWARD_GAIN),
        .mean = cpu_operand(backend, call, LAYERNORM_BACKWARD_MEAN),
        .rstd = cpu_operand(backend, call, LAYERNORM_BACKWARD_RSTD),
        .dx = cpu_operand(backend, call, LAYERNORM_BACKWARD_DX),
        .accumulate = cpu_accumulates(call, LAYERNORM_BACKWARD_DX),
        .channels = channels,
    };
    const int64_t parts = cpu_parts(rows);
    double *partial = cpu_workspace(backend, call, (size_t)parts * 2 * (size_t)channels * sizeof(double));
    CPU_OMP(omp parallel for schedule(static) num_threads(cpu_threads_for(backend, rows * channels)))
    for (int64_t part = 0; part < parts; part++) {
        double *dgain = partial + part * 2 * channels, *dbias = dgain + channels;
        memset(dgain, 0, 2 * (size_t)channels * sizeof *dgain);
        const int64_t end = cpu_part_begin(rows, parts, part + 1);
        for (int64_t n = cpu_part_begin(rows, parts, part); n < end; n++)
            row_gradient(&gradient, n, dgain, dbias);
    }
    parts_add(cpu_operand(backend, call, LAYERNORM_BACKWARD_DGAIN), cpu_accumulates(call, LAYERNORM_BACKWARD_DGAIN),
              partial, parts, channels);
    float *dbias = cpu_operand(backend, call, LAYERNORM_BACKWARD_DBIAS);
    if (dbias != NULL)
        parts_add(dbias, cpu_accumulates(call, LAYERNORM_BACKWARD_DBIAS), partial + channels, parts, channels);
    return GT_OK;
}
