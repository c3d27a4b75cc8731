/* The naive reference of layernorm, gelu and cross entropy in fp32, with the defects that belong to them.
 *
 * Two-pass variance, libm's float functions, one accumulator per sum.
 */
#include <math.h>

#include "tests/ref/naive.h"

#define SQRT_HALF 0.70710678f
#define SQRT_2_OVER_PI 0.79788456f
#define INV_SQRT_2PI 0.39894228f
#define GELU_CUBIC 0.044715f

static float row_variance(const double *x, int64_t channels, float mean, enum naive_defect defect)
{
    float sum = 0.0f, count = (float)channels;
    for (int64_t c = 0; c < channels; c++) {
        float centred = naive_at(x, c) - mean;
        sum = naive_add(sum, defect == DEFECT_ONE_PASS ? naive_at(x, c) * naive_at(x, c) : centred * centred, defect);
    }
    if (defect == DEFECT_ONE_PASS)
        return sum / count - mean * mean;
    return sum / (defect == DEFECT_UNBIASED_VARIANCE && channels > 1 ? count - 1.0f : count);
}

void naive_layernorm_forward(const struct op_call *call, double *const value[OP_OPERANDS_MAX], enum naive_defect defect)
{
    int64_t channels = call->operand[LAYERNORM_FORWARD_X].dims[1];
    for (int64_t n = 0; n < call->operand[LAYERNORM_FORWARD_X].dims[0]; n++) {
        const double *x = value[LAYERNORM_FORWARD_X] + n * channels;
        float mean = 0.0f;
        for (int64_t c = 0; c < channels; c++)
            mean = naive_add(mean, naive_at(x, c), defect);
        mean /= (float)channels;
        float variance = row_variance(x, channels, mean, defect);
        float rstd = 1.0f / sqrtf(variance + (defect == DEFECT_EPSILON ? 0.0f : call->attrs.epsilon));
        value[LAYERNORM_FORWARD_MEAN][n] = (double)mean;
        value[LAYERNORM_FORWARD_RSTD][n] = (double)rstd;
        for (int64_t c = 0; c < channels; c++) {
            float y = (naive_at(x, c) - mean) * rstd;
            if (defect != DEFECT_FORGET_GAIN)
                y *= naive_at(value[LAYERNORM_FORWARD_GAIN], c);
            if (value[LAYERNORM_FORWARD_BIAS] != NULL && defect != DEFECT_FORGET_BIAS)
                y += naive_at(value[LAYERNORM_FORWARD_BIAS], c);
            value[LAYERNORM_FORWARD_Y][n * channels + c] = (double)y;
        }
    }
}

static void layernorm_backward_row(const struct op_call *call, double *const *value, int64_t n,
                                   enum naive_defect defect)
{
    int64_t channels = call->operand[LAYERNORM_BACKWARD_X].dims[1], base = n * channels;
    float mean = naive_at(value[LAYERNORM_BACKWARD_MEAN], n), rstd = naive_at(value[LAYERNORM_BACKWARD_RSTD], n);
    float first = 0.0f, second = 0.0f;
    for (int64_t c = 0; c < channels; c++) {
        float gain = defect == DEFECT_FORGET_GAIN ? 1.0f : naive_at(value[LAYERNORM_BACKWARD_GAIN], c);
        float g = naive_at(value[LAYERNORM_BACKWARD_DY], base + c) * gain;
        first = naive_add(first, g, defect);
        second = naive_add(second, g * ((naive_at(value[LAYERNORM_BACKWARD_X], base + c) - mean) * rstd), defect);
    }
    first = defect == DEFECT_FORGET_FIRST ? 0.0f : first / (float)channels;
    second = defect == DEFECT_FORGET_SECOND ? 0.0f : second / (float)channels;
    for (int64_t c = 0; c < channels; c++) {
        float gain = defect == DEFECT_FORGET_GAIN ? 1.0f : naive_at(value[LAYERNORM_BACKWARD_GAIN], c);
        float xh = (naive_at(value[LAYERNORM_BACKWARD_X], base + c) - mean) * rstd;
        float dx = rstd * (naive_at(value[LAYERNORM_BACKWARD_DY], base + c) * gain - first - xh * second);
        dx += naive_before(call, value, LAYERNORM_BACKWARD_DX, base + c, defect);
        naive_store(call, value, LAYERNORM_BACKWARD_DX, base + c, dx, defect);
    }
}

void naive_layernorm_backward(const struct op_call *call, double *const value[OP_OPERANDS_MAX],
                              enum naive_defect defect)
{
    int64_t rows = call->operand[LAYERNORM_BACKWARD_X].dims[0], channels = call->operand[LAYERNORM_BACKWARD_X].dims[1];
    for (int64_t n = 0; n < rows; n++)
        layernorm_backward_row(call, value, n, defect);
    for (int64_t c = 0; c < channels; c++) {
        bool has_bias = value[LAYERNORM_BACKWARD_DBIAS] != NULL;
        float gain = naive_before(call, value, LAYERNORM_BACKWARD_DGAIN, c, defect);
        float bias = has_bias ? naive_before(call, value, LAYERNORM_BACKWARD_DBIAS, c, defect) : 0.0f;
        for (int64_t n = 0; n < (defect == DEFECT_LAST_TERM ? rows - 1 : rows); n++) {
            float dy = naive_at(value[LAYERNORM_BACKWARD_DY], n * channels + c);
            float xh = (naive_at(value[LAYERNORM_BACKWARD_X], n * channels + c) -
                        naive_at(value[LAYERNORM_BACKWARD_MEAN], n)) *
                       naive_at(value[LAYERNORM_BACKWARD_RSTD], n);
            gain = naive_add(gain, dy * xh, defect);
            bias = naive_add(bias, dy, defect);
        }
        naive_store(call, value, LAYERNORM_BACKWARD_DGAIN, c, gain, defect);
        if (has_bias)
            naive_store(call, value, LAYERNORM_BACKWARD_DBIAS, c, bias, defect);
    }
}

static bool gelu_is_erf(const struct op_call *call, enum naive_defect defect)
{
    return (call->attrs.gelu == GELU_ERF) != (defect == DEFECT_WRONG_KIND);
}

static float gelu_argument(float x, enum naive_defect defect)
{
    return SQRT_2_OVER_PI * (x + (defect == DEFECT_FORGET_SECOND ? 0.0f : GELU_CUBIC * x * x * x));
}

void naive_gelu_forward(const struct op_call *call, double *const value[OP_OPERANDS_MAX], enum naive_defect defect)
{
    for (int64_t i = 0; i < operand_elements(&call->operand[GELU_FORWARD_X]); i++) {
        float x = naive_at(value[GELU_FORWARD_X], i), y;
        if (defect == DEFECT_APPROXIMATE)
            y = x / (1.0f + expf(-1.702f * x));
        else if (defect == DEFECT_SHIFTED && x > 2.0f)
            y = x;
        else if (gelu_is_erf(call, defect))
            y = 0.5f * x * (1.0f + erff(x * SQRT_HALF));
        else
            y = 0.5f * x * (1.0f + tanhf(gelu_argument(x, defect)));
        value[GELU_FORWARD_Y][i] = (double)y;
    }
}

void naive_gelu_backward(const struct op_call *call, double *const value[OP_OPERANDS_MAX], enum naive_defect defect)
{
    for (int64_t i = 0; i < operand_elements(&call->operand[GELU_BACKWARD_X]); i++) {
        float x = naive_at(value[GELU_BACKWARD_X], i), dy = naive_at(value[GELU_BACKWARD_DY], i), slope, part;
        if (gelu_is_erf(call, defect)) {
            slope = 0.5f * (1.0f + erff(x * SQRT_HALF));
            part = x * INV_SQRT_2PI * expf(-0.5f * x * x);
        } else {
            float squash = tanhf(gelu_argument(x, defect));
            slope = 0.5f * (1.0f + squash);
            part = 0.5f * x * (1.0f - squash * squash) * SQRT_2_OVER_PI * (1.0f + 3.0f * GELU_CUBIC * x * x);
        }
        slope += defect == DEFECT_FORGET_FIRST ? 0.0f : part;
        value[GELU_BACKWARD_DX][i] = (double)(defect == DEFECT_FORGET_SCALE ? slope : dy * slope);
    }
}

static void cross_entropy_gradient(const struct op_call *call, double *const *value, int64_t n, float peak, float sum,
                                   enum naive_defect defect)
{
    int64_t width = call->operand[CROSS_ENTROPY_LOGITS].dims[1], target = (int64_t)value[CROSS_ENTROPY_TARGETS][n];
    double *z = value[CROSS_ENTROPY_LOGITS] + n * width;
    float scale = (float)value[CROSS_ENTROPY_SCALARS][SCALAR_LOSS_GRADIENT];
    for (int64_t v = 0; v < width; v++) {
        float hot = v == target && defect != DEFECT_FORGET_ONE_HOT ? 1.0f : 0.0f;
        if (v < call->attrs.vocab || defect == DEFECT_PADDING)
            z[v] = (double)((expf(naive_at(z, v) - peak) / sum - hot) * (defect == DEFECT_FORGET_SCALE ? 1.0f : scale));
        else
            z[v] = 0.0;
    }
}

static void cross_entropy_row(const struct op_call *call, double *const *value, int64_t n, enum naive_defect defect)
{
    int64_t width = call->operand[CROSS_ENTROPY_LOGITS].dims[1], target = (int64_t)value[CROSS_ENTROPY_TARGETS][n];
    int64_t used = defect == DEFECT_PADDING ? width : call->attrs.vocab;
    double *z = value[CROSS_ENTROPY_LOGITS] + n * width;
    float peak = naive_at(z, 0), sum = 0.0f;
    used -= defect == DEFECT_LAST_TERM && used > 1 ? 1 : 0;
    for (int64_t v = 1; v < used; v++)
        peak = naive_at(z, v) > peak ? naive_at(z, v) : peak;
    for (int64_t v = 0; v < used; v++)
        sum = naive_add(sum, expf(naive_at(z, v) - peak), defect);
    float loss = target < 0 ? peak : peak + logf(sum) - naive_at(z, target);
    value[CROSS_ENTROPY_LOSSES][n] = (double)loss;
    if (call->attrs.gradient)
        cross_entropy_gradient(call, value, n, peak, sum, defect);
}

void naive_cross_entropy(const struct op_call *call, double *const value[OP_OPERANDS_MAX], enum naive_defect defect)
{
    int64_t width = call->operand[CROSS_ENTROPY_LOGITS].dims[1];
    for (int64_t n = 0; n < call->operand[CROSS_ENTROPY_LOGITS].dims[0]; n++) {
        if (value[CROSS_ENTROPY_TARGETS][n] >= 0.0 || defect == DEFECT_FORGET_SKIP) {
            cross_entropy_row(call, value, n, defect);
            continue;
        }
        value[CROSS_ENTROPY_LOSSES][n] = 0.0;
        for (int64_t v = 0; v < width && call->attrs.gradient; v++)
            value[CROSS_ENTROPY_LOGITS][n * width + v] = 0.0;
    }
}
