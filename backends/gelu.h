/* gelu, swiglu and their slopes for the cpu backend and OpenCL, gates for all backends, so written
 * that loops over them vectorise: no branch on a value, no call, no table.
 *
 * erf: y = x P(X <= x), where a device's own erf may be off by 16 units in the last place.  tanh: y
 * = x sigmoid(2u), u = sqrt(2/pi) (x + 0.044715 x^3), which equals x/2 (1 + tanh u) without its
 * cancellation.
 *
 * Errors in ulp of the result on a processor (check_cpu_math measures them): exp 1.1, normal cdf 5
 * in either tail, its density 1.6.  Subnormal results are correct to one unit of the smallest
 * subnormal; overflow gives infinity; NaN stays NaN.  Coefficients: Chebyshev interpolation in
 * 40-digit arithmetic (mpmath), converted to monomials.
 *   exp    (e^r - 1 - r) / r^2, degree 4, on |r| <= 1.01 ln(2)/2: relative error of exp 8e-9
 *   tail   e^(t^2) erfc(t) (1 + 2t) of s = (t - 2.5)/(t + 2.5), degree 10, on 0 <= t <= 10.5:
 *          relative error 6e-9
 */
#ifndef GPT_TRAIN_GELU_H
#define GPT_TRAIN_GELU_H

/* A product and a sum, rounded once if that is fast. */
#if defined(__OPENCL_C_VERSION__)
#define FUSED(a, b, c) gt_fma(a, b, c)
#define cpu_exp(x) exp(x)
#else
#include "base/bits.h"
#if defined(__CUDACC__) || defined(GT_CUDA_EMULATED)
#define cpu_exp(x) expf(x)
#endif
#define FUSED(a, b, c) ((a) * (b) + (c))
#endif
#define SQRT_2_OVER_PI 0.797884560802865f
#define INVERSE_SQRT_2PI 0.398942280401433f
#define CUBIC 0.044715f
#define EXPONENT_MAX 87.0f /* e^87 is finite in fp32 */
/* Of 2u, at x = 2^20: what it is multiplied with is 0 there; larger ones overflow. */
#define SLOPE_MAX 0x1p38f

/* e^(x + low) for x in -107 .. 89 or NaN, and |low| below 0.1. */
BITS_FUNCTION float exp_bounded(float x, float low)
{
    const float shift =
        12582912.0f; /* 1.5 * 2^23: adding it leaves the nearest integer in the low bits */
    const float shifted = x * 1.44269504088896f + shift;
    const float n = shifted - shift;
    float r = x - n * 0.693145751953125f; /* ln 2 to 15 bits: the product is exact */
    r = r - n * 1.42860682030942e-6f;
    r = r + low;
    float p = 0.0013926926614f;
    p = FUSED(p, r, 0.00836377387441f);
    p = FUSED(p, r, 0.0416665501103f);
    p = FUSED(p, r, 0.166665733819f);
    p = FUSED(p, r, 0.5f);
    p = FUSED(p * r, r, r) + 1.0f;
    /* Write 2^n as two factors that are normal for every n in -156 .. 130. */
    const uint32_t biased = bits_of_float(shifted) - bits_of_float(shift) + 256u;
    const uint32_t halved = biased >> 1;
    const float first = float_of_bits((halved - 1u) << 23);
    const float second = float_of_bits((biased - halved - 1u) << 23);
    return p * first * second;
}

#ifndef cpu_exp
BITS_FUNCTION float cpu_exp(float x)
{
    const float a = x < -104.0f ? -104.0f : x; /* e^-104 rounds to 0, e^89 to infinity */
    return exp_bounded(a > 89.0f ? 89.0f : a, 0.0f);
}
#endif

/* *out_cdf = P(X <= x), with a small relative error in both tails; *out_density = e^(-x^2 / 2). */
BITS_FUNCTION void normal_of(float x, float *out_cdf, float *out_density)
{
    const float magnitude = x < 0.0f ? -x : x;
    const float a =
        magnitude > 14.6f ? 14.6f : magnitude; /* beyond it the cdf is 0 in fp32; keeps NaN */
    /* Split a^2 in two parts, the first exact; otherwise the exponent would magnify its rounding
     * error. */
    const float high = float_of_bits(bits_of_float(a) & 0xfffff000u);
    const float density = exp_bounded(-0.5f * (high * high), -0.5f * ((a - high) * (a + high)));
    const float t = a * 0.707106781186548f;
    const float s = (t - 2.5f) / (t + 2.5f);
    float p = 8.14758524128e-5f;
    p = FUSED(p, s, 0.000617004876421f);
    p = FUSED(p, s, 0.000340492606547f);
    p = FUSED(p, s, -0.00442432385566f);
    p = FUSED(p, s, 0.000980188356387f);
    p = FUSED(p, s, 0.0327790064919f);
    p = FUSED(p, s, -0.102973543454f);
    p = FUSED(p, s, 0.157627585304f);
    p = FUSED(p, s, -0.0990242129142f);
    p = FUSED(p, s, -0.122356686913f);
    p = FUSED(p, s, 1.26483818139f);
    const float tail = 0.5f * density * p / (1.0f + 2.0f * t);
    *out_cdf = x > 0.0f ? 1.0f - tail : tail;
    *out_density = density;
}

/* Returns e^x, clamped before it overflows. */
BITS_FUNCTION float exp_clamped(float x)
{
    return cpu_exp(x > EXPONENT_MAX ? EXPONENT_MAX : x);
}

/* Returns e^(-2u). */
BITS_FUNCTION float tanh_exponential(float x)
{
    return exp_clamped(-2.0f * SQRT_2_OVER_PI * (x + CUBIC * x * x * x));
}

BITS_FUNCTION float gelu(float x, enum gelu_kind kind)
{
    float cdf, density;
    if (kind == GELU_TANH)
        return x / (1.0f + tanh_exponential(x));
    normal_of(x, &cdf, &density);
    return x * cdf;
}

BITS_FUNCTION float gelu_slope(float x, enum gelu_kind kind)
{
    if (kind == GELU_TANH) {
        const float e = tanh_exponential(x), sigmoid = 1.0f / (1.0f + e);
        const float whole = 2.0f * SQRT_2_OVER_PI * (1.0f + 3.0f * CUBIC * x * x);
        const float slope = whole < SLOPE_MAX ? whole : 0.0f;
        return sigmoid + x * slope * (sigmoid * (e * sigmoid));
    }
    float cdf, density;
    normal_of(x, &cdf, &density);
    return cdf + x * INVERSE_SQRT_2PI * density;
}

BITS_FUNCTION float swiglu(float a, float b, enum gate_kind gate)
{
    return (gate == GATE_GELU ? gelu(a, GELU_TANH) : a / (1.0f + exp_clamped(-a))) * b;
}

/* Replaces a and b by their gradients.  1 - s(a) is computed as e^-a s(a), which does not cancel.
 */
BITS_FUNCTION void swiglu_gradients(float dy, enum gate_kind gate, float *a, float *b)
{
    if (gate == GATE_GELU) {
        const float gated = gelu(*a, GELU_TANH);
        *a = dy * *b * gelu_slope(*a, GELU_TANH);
        *b = dy * gated;
        return;
    }
    const float e = exp_clamped(-*a), s = 1.0f / (1.0f + e), old = *a;
    *a = dy * *b * s * (1.0f + old * (e * s));
    *b = dy * (old * s);
}

/* Return a gate's factor, s(z) or z s(z), and its derivative. */
BITS_FUNCTION float gate_of(float z, enum gate_kind gate)
{
    const float s = 1.0f / (1.0f + exp_clamped(-z));
    return gate == GATE_SIGMOID ? s : z * s;
}

BITS_FUNCTION float gate_slope(float z, enum gate_kind gate)
{
    const float e = exp_clamped(-z), s = 1.0f / (1.0f + e), rest = e * s;
    return gate == GATE_SIGMOID ? s * rest : s * (1.0f + z * rest);
}

#endif
