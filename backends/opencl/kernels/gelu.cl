/* gelu: x P(X <= x) by erf, or its tanh form; swiglu: a s(a) b with the logistic function s.
 *
 * One work-item per element of y; gelu's y may be x, its dx may be dy or x.  The normal distribution is computed with
 * the cpu backend's method and coefficients, because a device's erf may be off by 16 units in the last place.  The tanh
 * form is the logistic function of twice the argument, which does not cancel for negative x.
 */
#define GT_GELU_ERF 0
#define GT_SQRT_2_OVER_PI 0.797884560802865f
#define GT_INVERSE_SQRT_2PI 0.398942280401433f
#define GT_CUBIC 0.044715f
#define GT_EXPONENT_MAX 87.0f
#define GT_SLOPE_MAX 0x1p38f /* of 2u, at x = 2^20: what it is multiplied with is 0 there; larger ones overflow */

/* e^(x + low) for x in -107 .. 89 or NaN, and |low| below 0.1. */
static float gt_exp_bounded(float x, float low)
{
    const float shift = 12582912.0f; /* 1.5 * 2^23: adding it leaves the nearest integer in the low bits */
    const float shifted = x * 1.44269504088896f + shift;
    const float n = shifted - shift;
    float r = x - n * 0.693145751953125f; /* ln 2 to 15 bits: the product is exact */
    r = r - n * 1.42860682030942e-6f;
    r = r + low;
    float p = 0.0013926926614f;
    p = gt_fma(p, r, 0.00836377387441f);
    p = gt_fma(p, r, 0.0416665501103f);
    p = gt_fma(p, r, 0.166665733819f);
    p = gt_fma(p, r, 0.5f);
    p = gt_fma(p * r, r, r) + 1.0f;
    /* Write 2^n as two factors that are normal for every n in -156 .. 130. */
    const uint biased = as_uint(shifted) - as_uint(shift) + 256u, halved = biased >> 1;
    const float first = as_float((halved - 1u) << 23), second = as_float((biased - halved - 1u) << 23);
    return p * first * second;
}

/* *cdf = P(X <= x), with a small relative error in both tails; returns e^(-x^2 / 2). */
static float gt_normal(float x, float *cdf)
{
    const float magnitude = x < 0.0f ? -x : x;
    const float a = magnitude > 14.6f ? 14.6f : magnitude; /* keeps NaN */
    const float high = as_float(as_uint(a) & 0xfffff000u); /* its square is exact */
    const float density = gt_exp_bounded(-0.5f * (high * high), -0.5f * ((a - high) * (a + high)));
    const float t = a * 0.707106781186548f, s = (t - 2.5f) / (t + 2.5f);
    float p = 8.14758524128e-5f;
    p = gt_fma(p, s, 0.000617004876421f);
    p = gt_fma(p, s, 0.000340492606547f);
    p = gt_fma(p, s, -0.00442432385566f);
    p = gt_fma(p, s, 0.000980188356387f);
    p = gt_fma(p, s, 0.0327790064919f);
    p = gt_fma(p, s, -0.102973543454f);
    p = gt_fma(p, s, 0.157627585304f);
    p = gt_fma(p, s, -0.0990242129142f);
    p = gt_fma(p, s, -0.122356686913f);
    p = gt_fma(p, s, 1.26483818139f);
    const float tail = 0.5f * density * p / (1.0f + 2.0f * t);
    *cdf = x > 0.0f ? 1.0f - tail : tail;
    return density;
}

/* Returns e^(-2u), clamped before it overflows. */
static float gt_tanh_exponential(float x)
{
    const float exponent = -2.0f * GT_SQRT_2_OVER_PI * (x + GT_CUBIC * x * x * x);
    return exp(exponent > GT_EXPONENT_MAX ? GT_EXPONENT_MAX : exponent);
}

__kernel void gt_gelu_forward(GT_TENSOR(x), GT_TENSOR(y), int kind, long count)
{
    const long i = (long)get_global_id(0);
    if (i >= count)
        return;
    const float in = GT_LOAD(x, i);
    float out;
    if (kind == GT_GELU_ERF) {
        float cdf;
        gt_normal(in, &cdf);
        out = in * cdf;
    } else {
        out = in / (1.0f + gt_tanh_exponential(in));
    }
    GT_STORE(y, i, out);
}

__kernel void gt_gelu_backward(GT_TENSOR(dy), GT_TENSOR(x), GT_TENSOR(dx), int kind, long count)
{
    const long i = (long)get_global_id(0);
    if (i >= count)
        return;
    const float in = GT_LOAD(x, i);
    float derivative;
    if (kind == GT_GELU_ERF) {
        float cdf;
        const float density = gt_normal(in, &cdf);
        derivative = cdf + in * GT_INVERSE_SQRT_2PI * density;
    } else {
        const float e = gt_tanh_exponential(in), sigmoid = 1.0f / (1.0f + e);
        const float whole = 2.0f * GT_SQRT_2_OVER_PI * (1.0f + 3.0f * GT_CUBIC * in * in);
        const float slope = whole < GT_SLOPE_MAX ? whole : 0.0f;
        derivative = sigmoid + in * slope * (sigmoid * (e * sigmoid));
    }
    GT_STORE(dx, i, GT_LOAD(dy, i) * derivative);
}

/* Returns e^-a, clamped before it overflows. */
static float gt_logistic_exponential(float a)
{
    return exp(-a > GT_EXPONENT_MAX ? GT_EXPONENT_MAX : -a);
}

/* A row of x is [a | b], each of `columns`; a work-item per column of a row of y. */
__kernel void gt_swiglu_forward(GT_TENSOR(x), GT_TENSOR(y), long columns)
{
    long n;
    const long c = gt_column(columns, &n), at = 2 * n * columns + c;
    if (c >= columns)
        return;
    const float a = GT_LOAD(x, at);
    GT_STORE(y, n * columns + c, a / (1.0f + gt_logistic_exponential(a)) * GT_LOAD(x, at + columns));
}

/* 1 - s(a) is computed as e^-a s(a), which does not cancel. */
__kernel void gt_swiglu_backward(GT_TENSOR(dy), GT_TENSOR(x), GT_TENSOR(dx), long columns)
{
    long n;
    const long c = gt_column(columns, &n), at = 2 * n * columns + c;
    if (c >= columns)
        return;
    const float a = GT_LOAD(x, at), b = GT_LOAD(x, at + columns), gradient = GT_LOAD(dy, n * columns + c);
    const float e = gt_logistic_exponential(a), s = 1.0f / (1.0f + e);
    GT_STORE(dx, at, gradient * b * s * (1.0f + a * (e * s)));
    GT_STORE(dx, at + columns, gradient * (a * s));
}
