/* gelu: x P(X <= x) by erf, or its tanh form; swiglu: a s(a) b with the logistic function s.
 *
 * gelu's y may be x, its dx may be dy or x.  The normal distribution is computed with
 * the cpu backend's method and coefficients, because a device's erf may be off by 16 units in the last place.  The tanh
 * form is the logistic function of twice the argument, which does not cancel for negative x.
 */
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

static float gt_gelu(float x, int kind)
{
    if (kind != GELU_ERF)
        return x / (1.0f + gt_tanh_exponential(x));
    float cdf;
    gt_normal(x, &cdf);
    return x * cdf;
}

static float gt_gelu_slope(float x, int kind)
{
    if (kind == GELU_ERF) {
        float cdf;
        const float density = gt_normal(x, &cdf);
        return cdf + x * GT_INVERSE_SQRT_2PI * density;
    }
    const float e = gt_tanh_exponential(x), sigmoid = 1.0f / (1.0f + e);
    const float whole = 2.0f * GT_SQRT_2_OVER_PI * (1.0f + 3.0f * GT_CUBIC * x * x);
    const float slope = whole < GT_SLOPE_MAX ? whole : 0.0f;
    return sigmoid + x * slope * (sigmoid * (e * sigmoid));
}

__kernel void gt_gelu_forward(GT_TENSOR(x), GT_TENSOR(y), int kind, long count)
{
    GT_ITEM((long)get_global_id(0), count);
    GT_LOAD_EACH(v, x, begin);
    GT_FOR_EACH(e)
        v[e] = gt_gelu(v[e], kind);
    GT_STORE_EACH(y, begin, v);
}

__kernel void gt_gelu_backward(GT_TENSOR(dy), GT_TENSOR(x), GT_TENSOR(dx), int kind, long count)
{
    GT_ITEM((long)get_global_id(0), count);
    GT_LOAD_EACH(v, x, begin);
    GT_LOAD_EACH(gradient, dy, begin);
    GT_FOR_EACH(e)
        v[e] = gradient[e] * gt_gelu_slope(v[e], kind);
    GT_STORE_EACH(dx, begin, v);
}

/* Returns e^-a, clamped before it overflows. */
static float gt_logistic_exponential(float a)
{
    return exp(-a > GT_EXPONENT_MAX ? GT_EXPONENT_MAX : -a);
}

/* A row of x is [a | b], each of `columns`. */
__kernel void gt_swiglu_forward(GT_TENSOR(x), GT_TENSOR(y), long columns)
{
    long n;
    GT_ITEM(gt_column((columns + GT_EACH - 1) / GT_EACH, &n), columns);
    const long at = 2 * n * columns + begin;
    GT_LOAD_EACH(a, x, at);
    GT_LOAD_EACH(b, x, at + columns);
    GT_FOR_EACH(e)
        a[e] = a[e] / (1.0f + gt_logistic_exponential(a[e])) * b[e];
    GT_STORE_EACH(y, n * columns + begin, a);
}

/* 1 - s(a) is computed as e^-a s(a), which does not cancel. */
__kernel void gt_swiglu_backward(GT_TENSOR(dy), GT_TENSOR(x), GT_TENSOR(dx), long columns)
{
    long n;
    GT_ITEM(gt_column((columns + GT_EACH - 1) / GT_EACH, &n), columns);
    const long at = 2 * n * columns + begin;
    GT_LOAD_EACH(a, x, at);
    GT_LOAD_EACH(b, x, at + columns);
    GT_LOAD_EACH(gradient, dy, n * columns + begin);
    GT_FOR_EACH(e) {
        const float exponential = gt_logistic_exponential(a[e]), s = 1.0f / (1.0f + exponential), old = a[e];
        a[e] = gradient[e] * b[e] * s * (1.0f + old * (exponential * s));
        b[e] = gradient[e] * (old * s);
    }
    GT_STORE_EACH(dx, at, a);
    GT_STORE_EACH(dx, at + columns, b);
}
