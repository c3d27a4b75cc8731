/* gelu, swiglu and their slopes in fp32, for kernels of their own and the ends of products.
 *
 * erf: y = x P(X <= x), from the normal distribution's tail beyond |x|, which one exponential and
 * one reciprocal make. tanh: y = x sigmoid(2u), u = sqrt(2/pi) (x + 0.044715 x^3), which is x/2 (1
 * + tanh u) without its cancellation.  No IEEE division and no exponential that is exact in its
 * subnormals, because their instructions would take longer than the memory
 * (tests/e2e/cuda_registers.py counts them).  The bits are the same in every kernel: products and
 * sums that are fused are written so, and others cannot be.
 */
#ifndef GPT_TRAIN_CUDA_KERNELS_GELU_FAST_H
#define GPT_TRAIN_CUDA_KERNELS_GELU_FAST_H

#include "backends/cuda/cuda_floats.h"
#include "backends/gelu.h"

#define LOG2_E 1.44269504088896f
#define MAGNITUDE_MAX 14.0f /* P(X > 14) is 0 in fp32 */

/* Returns P(X > a) for a >= 0, and sets *kernel to e^(-a^2 / 2).  With r = 1 / (1 + 0.4 a), P(X >
 * a) is e^(-a^2 / 2) r times a function of r that is nearly a polynomial.  This one has a relative
 * error of 3.5e-8 e^(a^2 / 8), at most 2.1e-6 (weighted minimax, by Remez' algorithm). */
DEVICE float normal_tail(float a, float *kernel)
{
    const float r = fast_reciprocal(fmaf(a, 0.4f, 1.0f));
    float p = -0.03710092387f;
    p = fmaf(p, r, 0.1884317371f);
    p = fmaf(p, r, -0.3486873968f);
    p = fmaf(p, r, 0.2228153389f);
    p = fmaf(p, r, 0.006530538352f);
    p = fmaf(p, r, 0.1507118026f);
    p = fmaf(p, r, 0.1576287398f);
    p = fmaf(p, r, 0.1596701464f);
    *kernel = fast_exp2(a * a * (-0.5f * LOG2_E));
    return *kernel * r * p;
}

/* 1 / (1 + e^(-2u)). */
DEVICE float tanh_sigmoid(float x)
{
    const float by_cube = -2.0f * LOG2_E * SQRT_2_OVER_PI * CUBIC,
                by_x = -2.0f * LOG2_E * SQRT_2_OVER_PI;
    return fast_reciprocal(1.0f + fast_exp2(x * fmaf(x * x, by_cube, by_x)));
}

/* For erf the positive part of x less |x| P(X > |x|); the positive part by halves, so that NaN and
 * infinity remain. */
template <enum gelu_kind KIND> DEVICE float gelu(float x)
{
    if constexpr (KIND == GELU_TANH)
        return x * tanh_sigmoid(x);
    float kernel;
    const float a = fminf(fabsf(x), MAGNITUDE_MAX), half = 0.5f * x;
    return fmaf(-a, normal_tail(a, &kernel), half + fabsf(half));
}

/* The derivative at x; for erf that at -|x|, or 1 less that. */
template <enum gelu_kind KIND> DEVICE float gelu_slope(float x)
{
    if constexpr (KIND == GELU_TANH) {
        const float s = tanh_sigmoid(x), rest = fmaf(-s, s, s);
        const float inner = fmaf(x * x, 6.0f * SQRT_2_OVER_PI * CUBIC, 2.0f * SQRT_2_OVER_PI);
        return fmaf(x * rest, inner,
                    s); /* in this order: the square may be large, and the rest is 0 then */
    }
    float kernel;
    const float a = fabsf(x), tail = normal_tail(a, &kernel),
                slope = fmaf(-a * INVERSE_SQRT_2PI, kernel, tail);
    return x > 0.0f ? 1.0f - slope : slope;
}

/* swiglu: a s(a) b, or geglu. */
template <enum gate_kind GATE> DEVICE float gated(float a, float b)
{
    if constexpr (GATE == GATE_GELU)
        return gelu<GELU_TANH>(a) * b;
    return a * fast_reciprocal(__fadd_rn(1.0f, exp_clamped(-a))) * b;
}

/* Replaces a and b by their gradients.  1 - s(a) is e^-a s(a), which does not cancel. */
template <enum gate_kind GATE> DEVICE void gated_slopes(float dy, float *a, float *b)
{
    const float old = *a;
    if constexpr (GATE == GATE_GELU) {
        *a = dy * *b * gelu_slope<GELU_TANH>(old);
        *b = dy * gelu<GELU_TANH>(old);
        return;
    }
    const float e = exp_clamped(-old), s = fast_reciprocal(__fadd_rn(1.0f, e));
    *a = dy * *b * s * fmaf(old, e * s, 1.0f);
    *b = dy * (old * s);
}

#endif
