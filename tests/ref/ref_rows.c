/* The oracle of the ops with a nonlinear function of a row or an element: layernorm, gelu, cross entropy.
 *
 * The terms are derived in tests/opcheck/bounds.md; each line here names the stage that it stands for.
 */
#include <math.h>

#include "tests/ref/ref.h"

#define ULP 0x1p-24
#define SQRT_HALF 0.70710678118654752440
#define SQRT_2_OVER_PI 0.79788456080286535588
#define INV_SQRT_2PI 0.39894228040143267794
#define GELU_CUBIC 0.044715

static double before(const struct op_call *call, const struct ref_tensors *t, int32_t slot, int64_t i)
{
    return (call->attrs.accumulate >> slot & 1u) != 0 ? t->value[slot][i] : 0.0;
}

static void layernorm_forward_row(const struct op_call *call, const struct ref_tensors *t, int64_t n)
{
    int64_t channels = call->operand[LAYERNORM_FORWARD_X].dims[1];
    const double *x = t->value[LAYERNORM_FORWARD_X] + n * channels, *gain = t->value[LAYERNORM_FORWARD_GAIN];
    const double *bias = t->value[LAYERNORM_FORWARD_BIAS];
    double count = (double)channels, mean = 0.0, size = 0.0, variance = 0.0, epsilon = (double)call->attrs.epsilon;
    for (int64_t c = 0; c < channels; c++) {
        mean += x[c] / count;
        size += fabs(x[c]) / count;
    }
    for (int64_t c = 0; c < channels; c++)
        variance += (x[c] - mean) * (x[c] - mean) / count;
    double rstd = 1.0 / sqrt(variance + epsilon);
    /* The mean is a sum of C terms; its error moves the variance to second order only. */
    double mean_term = sqrt(count) * size, mean_error = 8.0 * ULP * mean_term;
    double rstd_term = 0.5 * (sqrt(count) + 2.0) * variance * rstd * rstd + 2.0 +
                       0.5 * mean_error * mean_error * rstd * rstd / (8.0 * ULP);
    t->value[LAYERNORM_FORWARD_MEAN][n] = mean;
    t->term[LAYERNORM_FORWARD_MEAN][n] = mean_term;
    t->value[LAYERNORM_FORWARD_RSTD][n] = rstd;
    t->term[LAYERNORM_FORWARD_RSTD][n] = rstd * rstd_term;
    for (int64_t c = 0; c < channels; c++) {
        double scaled = (x[c] - mean) * rstd * gain[c], shift = bias != NULL ? bias[c] : 0.0;
        t->value[LAYERNORM_FORWARD_Y][n * channels + c] = scaled + shift;
        t->term[LAYERNORM_FORWARD_Y][n * channels + c] =
            fabs(gain[c]) * rstd * mean_term + fabs(scaled) * rstd_term + sqrt(3.0) * (fabs(scaled) + fabs(shift));
    }
}

void ref_layernorm_forward(const struct op_call *call, const struct ref_tensors *t)
{
    for (int64_t n = 0; n < call->operand[LAYERNORM_FORWARD_X].dims[0]; n++)
        layernorm_forward_row(call, t, n);
}

static void layernorm_backward_row(const struct op_call *call, const struct ref_tensors *t, int64_t n)
{
    int64_t channels = call->operand[LAYERNORM_BACKWARD_X].dims[1];
    const double *x = t->value[LAYERNORM_BACKWARD_X] + n * channels,
                 *dy = t->value[LAYERNORM_BACKWARD_DY] + n * channels;
    const double *gain = t->value[LAYERNORM_BACKWARD_GAIN];
    double mean = t->value[LAYERNORM_BACKWARD_MEAN][n], rstd = t->value[LAYERNORM_BACKWARD_RSTD][n];
    double count = (double)channels, first = 0.0, second = 0.0, first_size = 0.0, second_size = 0.0;
    for (int64_t c = 0; c < channels; c++) {
        double g = dy[c] * gain[c], xh = (x[c] - mean) * rstd;
        first += g / count;
        second += g * xh / count;
        first_size += fabs(g) / count;
        second_size += fabs(g * xh) / count;
    }
    for (int64_t c = 0; c < channels; c++) {
        double g = dy[c] * gain[c], xh = (x[c] - mean) * rstd;
        double old = before(call, t, LAYERNORM_BACKWARD_DX, n * channels + c);
        t->value[LAYERNORM_BACKWARD_DX][n * channels + c] = old + rstd * (g - first - xh * second);
        t->term[LAYERNORM_BACKWARD_DX][n * channels + c] =
            fabs(old) + fabs(rstd) * (sqrt(count) * (first_size + fabs(xh) * second_size) +
                                      sqrt(4.0) * (fabs(g) + fabs(first) + fabs(xh * second)));
    }
}

static void layernorm_backward_column(const struct op_call *call, const struct ref_tensors *t, int64_t c)
{
    int64_t rows = call->operand[LAYERNORM_BACKWARD_X].dims[0], channels = call->operand[LAYERNORM_BACKWARD_X].dims[1];
    double gain_sum = before(call, t, LAYERNORM_BACKWARD_DGAIN, c), gain_size = fabs(gain_sum);
    double bias_sum = 0.0, bias_size = 0.0;
    bool has_bias = t->value[LAYERNORM_BACKWARD_DBIAS] != NULL;
    if (has_bias)
        bias_sum = before(call, t, LAYERNORM_BACKWARD_DBIAS, c);
    bias_size = fabs(bias_sum);
    for (int64_t n = 0; n < rows; n++) {
        double dy = t->value[LAYERNORM_BACKWARD_DY][n * channels + c];
        double xh = (t->value[LAYERNORM_BACKWARD_X][n * channels + c] - t->value[LAYERNORM_BACKWARD_MEAN][n]) *
                    t->value[LAYERNORM_BACKWARD_RSTD][n];
        gain_sum += dy * xh;
        gain_size += fabs(dy * xh);
        bias_sum += dy;
        bias_size += fabs(dy);
    }
    t->value[LAYERNORM_BACKWARD_DGAIN][c] = gain_sum;
    t->term[LAYERNORM_BACKWARD_DGAIN][c] = sqrt((double)rows) * gain_size;
    if (has_bias) {
        t->value[LAYERNORM_BACKWARD_DBIAS][c] = bias_sum;
        t->term[LAYERNORM_BACKWARD_DBIAS][c] = sqrt((double)rows) * bias_size;
    }
}

void ref_layernorm_backward(const struct op_call *call, const struct ref_tensors *t)
{
    for (int64_t n = 0; n < call->operand[LAYERNORM_BACKWARD_X].dims[0]; n++)
        layernorm_backward_row(call, t, n);
    for (int64_t c = 0; c < call->operand[LAYERNORM_BACKWARD_X].dims[1]; c++)
        layernorm_backward_column(call, t, c);
}

void ref_gelu_forward(const struct op_call *call, const struct ref_tensors *t)
{
    for (int64_t i = 0; i < operand_elements(&call->operand[GELU_FORWARD_X]); i++) {
        double x = t->value[GELU_FORWARD_X][i], squash, slope; /* slope: argument times derivative, for its rounding */
        if (call->attrs.gelu == GELU_ERF) {
            squash = erf(x * SQRT_HALF);
            slope = 2.0 * INV_SQRT_2PI * exp(-0.5 * x * x) * fabs(x);
        } else {
            double argument = SQRT_2_OVER_PI * (x + GELU_CUBIC * x * x * x);
            squash = tanh(argument);
            slope = 4.0 * (1.0 - squash * squash) * fabs(argument);
        }
        t->value[GELU_FORWARD_Y][i] = 0.5 * x * (1.0 + squash);
        t->term[GELU_FORWARD_Y][i] = 0.5 * fabs(x) * (sqrt(2.0) * (1.0 + fabs(squash)) + slope);
    }
}

static void gelu_slope_erf(double x, double *out_slope, double *out_term)
{
    double squash = erf(x * SQRT_HALF), density = INV_SQRT_2PI * exp(-0.5 * x * x);
    *out_slope = 0.5 * (1.0 + squash) + x * density;
    *out_term = sqrt(3.0) * (0.5 * (1.0 + fabs(squash)) + fabs(x) * density) + fabs(x) * density * (1.0 + x * x);
}

static void gelu_slope_tanh(double x, double *out_slope, double *out_term)
{
    double argument = SQRT_2_OVER_PI * (x + GELU_CUBIC * x * x * x), squash = tanh(argument);
    double inner = SQRT_2_OVER_PI * (1.0 + 3.0 * GELU_CUBIC * x * x), flat = 1.0 - squash * squash;
    *out_slope = 0.5 * (1.0 + squash) + 0.5 * x * flat * inner;
    *out_term = sqrt(3.0) * (0.5 * (1.0 + fabs(squash)) + 0.5 * fabs(x) * (1.0 + squash * squash) * inner) +
                4.0 * fabs(argument) * flat * (0.5 + fabs(x * squash) * inner);
}

void ref_gelu_backward(const struct op_call *call, const struct ref_tensors *t)
{
    for (int64_t i = 0; i < operand_elements(&call->operand[GELU_BACKWARD_X]); i++) {
        double slope, term, dy = t->value[GELU_BACKWARD_DY][i];
        if (call->attrs.gelu == GELU_ERF)
            gelu_slope_erf(t->value[GELU_BACKWARD_X][i], &slope, &term);
        else
            gelu_slope_tanh(t->value[GELU_BACKWARD_X][i], &slope, &term);
        t->value[GELU_BACKWARD_DX][i] = dy * slope;
        t->term[GELU_BACKWARD_DX][i] = fabs(dy) * (term + fabs(slope));
    }
}

/* A row that counts for nothing: loss 0, gradient 0. */
static void cross_entropy_ignored(const struct op_call *call, const struct ref_tensors *t, int64_t n)
{
    int64_t width = call->operand[CROSS_ENTROPY_LOGITS].dims[1];
    t->value[CROSS_ENTROPY_LOSSES][n] = 0.0;
    t->term[CROSS_ENTROPY_LOSSES][n] = REF_EXACT;
    for (int64_t v = 0; v < width; v++) {
        if (call->attrs.gradient)
            t->value[CROSS_ENTROPY_LOGITS][n * width + v] = 0.0;
        t->term[CROSS_ENTROPY_LOGITS][n * width + v] = REF_EXACT;
    }
}

static void cross_entropy_gradient(const struct op_call *call, const struct ref_tensors *t, int64_t n, double peak,
                                   double lse, double sum_term)
{
    int64_t width = call->operand[CROSS_ENTROPY_LOGITS].dims[1], target = (int64_t)t->value[CROSS_ENTROPY_TARGETS][n];
    double *z = t->value[CROSS_ENTROPY_LOGITS] + n * width, *term = t->term[CROSS_ENTROPY_LOGITS] + n * width;
    double scale = t->value[CROSS_ENTROPY_SCALARS][SCALAR_LOSS_GRADIENT];
    for (int64_t v = 0; v < width; v++) {
        bool counts = v < call->attrs.vocab;
        double p = counts ? exp(z[v] - lse) : 0.0, hot = v == target ? 1.0 : 0.0;
        double exponent = fabs(z[v] - peak) + fabs(lse) + 3.0;
        z[v] = (p - hot) * scale;
        term[v] = counts ? fabs(scale) * (p * (sum_term + exponent) + hot) : REF_EXACT;
    }
}

static void cross_entropy_row(const struct op_call *call, const struct ref_tensors *t, int64_t n)
{
    int64_t width = call->operand[CROSS_ENTROPY_LOGITS].dims[1], target = (int64_t)t->value[CROSS_ENTROPY_TARGETS][n];
    const double *z = t->value[CROSS_ENTROPY_LOGITS] + n * width;
    double peak = z[0], sum = 0.0, sum_size = 0.0;
    for (int64_t v = 1; v < call->attrs.vocab; v++)
        peak = z[v] > peak ? z[v] : peak;
    for (int64_t v = 0; v < call->attrs.vocab; v++) {
        sum += exp(z[v] - peak);
        sum_size += exp(z[v] - peak) * (fabs(z[v] - peak) + 1.0);
    }
    double lse = peak + log(sum), sum_term = sqrt((double)call->attrs.vocab) + sum_size / sum;
    t->value[CROSS_ENTROPY_LOSSES][n] = lse - z[target];
    t->term[CROSS_ENTROPY_LOSSES][n] = sum_term + fabs(peak) + log(sum) + fabs(z[target]);
    if (call->attrs.gradient) {
        cross_entropy_gradient(call, t, n, peak, lse, sum_term);
        return;
    }
    for (int64_t v = 0; v < width; v++)
        t->term[CROSS_ENTROPY_LOGITS][n * width + v] = REF_EXACT;
}

void ref_cross_entropy(const struct op_call *call, const struct ref_tensors *t)
{
    for (int64_t n = 0; n < call->operand[CROSS_ENTROPY_LOGITS].dims[0]; n++) {
        if (t->value[CROSS_ENTROPY_TARGETS][n] < 0.0)
            cross_entropy_ignored(call, t, n);
        else
            cross_entropy_row(call, t, n);
    }
}
