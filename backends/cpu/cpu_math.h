/* exp and the normal distribution in fp32, written so that loops over them vectorise: no branch, no call, no table.
 *
 * Errors in ulp of the result (check_cpu_math measures them): exp 1.1, normal cdf 5 in either tail, its kernel 1.6.
 * Subnormal results are correct to one unit of the smallest subnormal; overflow gives infinity; NaN stays NaN.
 * Coefficients: Chebyshev interpolation in 40-digit arithmetic (mpmath), converted to monomials.
 *   exp    (e^r - 1 - r) / r^2, degree 4, on |r| <= 1.01 ln(2)/2: relative error of exp 8e-9
 *   tail   e^(t^2) erfc(t) (1 + 2t) of s = (t - 2.5)/(t + 2.5), degree 10, on 0 <= t <= 10.5: relative error 6e-9
 */
#ifndef GPT_TRAIN_CPU_CPU_MATH_H
#define GPT_TRAIN_CPU_CPU_MATH_H

#include "backends/cpu/cpu.h"

/* e^(x + low) for x in -107 .. 89 or NaN, and |low| below 0.1. */
static inline float cpu_exp_bounded(float x, float low)
{
    const float shift = 12582912.0f; /* 1.5 * 2^23: adding it leaves the nearest integer in the low bits */
    const float shifted = x * 1.44269504088896f + shift;
    const float n = shifted - shift;
    float r = x - n * 0.693145751953125f; /* ln 2 to 15 bits: the product is exact */
    r = r - n * 1.42860682030942e-6f;
    r = r + low;
    float p = 0.0013926926614f;
    p = p * r + 0.00836377387441f;
    p = p * r + 0.0416665501103f;
    p = p * r + 0.166665733819f;
    p = p * r + 0.5f;
    p = (p * r) * r + r + 1.0f;
    /* Write 2^n as two factors that are normal for every n in -156 .. 130. */
    const uint32_t biased = bits_of_float(shifted) - bits_of_float(shift) + 256u;
    const uint32_t half = biased >> 1;
    const float first = float_of_bits((half - 1u) << 23);
    const float second = float_of_bits((biased - half - 1u) << 23);
    return p * first * second;
}

static inline float cpu_exp(float x)
{
    const float a = x < -104.0f ? -104.0f : x; /* e^-104 rounds to 0, e^89 to infinity */
    return cpu_exp_bounded(a > 89.0f ? 89.0f : a, 0.0f);
}

/* values[count] = e^(value - largest); returns their sum. */
static inline float cpu_exp_sum(float *values, int64_t count, float largest)
{
    float sum = 0.0f;
    CPU_SIMD_SUM(i, count, sum) {
        const float e = cpu_exp(values[i] - largest);
        values[i] = e;
        sum += e;
    }
    return sum;
}

/* *out_cdf = P(X <= x), with a small relative error in both tails; *out_kernel = e^(-x^2 / 2). */
static inline void cpu_normal(float x, float *out_cdf, float *out_kernel)
{
    const float magnitude = x < 0.0f ? -x : x;
    const float a = magnitude > 14.6f ? 14.6f : magnitude; /* beyond it the cdf is 0 in fp32; keeps NaN */
    /* Split a^2 in two parts, the first exact; otherwise the exponent would magnify its rounding error. */
    const float high = float_of_bits(bits_of_float(a) & 0xfffff000u);
    const float kernel = cpu_exp_bounded(-0.5f * (high * high), -0.5f * ((a - high) * (a + high)));
    const float t = a * 0.707106781186548f;
    const float s = (t - 2.5f) / (t + 2.5f);
    float p = 8.14758524128e-5f;
    p = p * s + 0.000617004876421f;
    p = p * s + 0.000340492606547f;
    p = p * s - 0.00442432385566f;
    p = p * s + 0.000980188356387f;
    p = p * s + 0.0327790064919f;
    p = p * s - 0.102973543454f;
    p = p * s + 0.157627585304f;
    p = p * s - 0.0990242129142f;
    p = p * s - 0.122356686913f;
    p = p * s + 1.26483818139f;
    const float tail = 0.5f * kernel * p / (1.0f + 2.0f * t);
    *out_cdf = x > 0.0f ? 1.0f - tail : tail;
    *out_kernel = kernel;
}

#define CPU_MAX_LANES 64 /* several vectors, so that comparisons do not wait for each other */

/* Returns the maximum of values[count], count >= 1; may ignore NaN.  Uses lanes, which every compiler vectorises. */
static inline float cpu_max_of(const float *values, int64_t count)
{
    float lane[CPU_MAX_LANES];
    for (int64_t l = 0; l < CPU_MAX_LANES; l++)
        lane[l] = values[0];
    const int64_t whole = count - count % CPU_MAX_LANES;
    for (int64_t i = 0; i < whole; i += CPU_MAX_LANES) {
        for (int64_t l = 0; l < CPU_MAX_LANES; l++)
            lane[l] = values[i + l] > lane[l] ? values[i + l] : lane[l];
    }
    for (int64_t i = whole; i < count; i++)
        lane[0] = values[i] > lane[0] ? values[i] : lane[0];
    for (int64_t half = CPU_MAX_LANES / 2; half > 0; half /= 2) {
        for (int64_t l = 0; l < half; l++)
            lane[l] = lane[l + half] > lane[l] ? lane[l + half] : lane[l];
    }
    return lane[0];
}

#endif
