/* gelu_forward and gelu_backward, erf and tanh, and swiglu: elementwise in groups of eight, one
 * read of each operand and one write.
 *
 * erf: y = x P(X <= x), from the normal distribution's tail beyond |x|, which one exponential and
 * one reciprocal make. tanh: y = x sigmoid(2u), u = sqrt(2/pi) (x + 0.044715 x^3), which is x/2 (1
 * + tanh u) without its cancellation.  fp32 throughout; gelu's kernels have no IEEE division and no
 * exponential that is exact in its subnormals, because their instructions would take longer than
 * the memory (tests/e2e/cuda_registers.py counts them).
 */
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

template <enum gelu_kind KIND, int DTYPE>
static __global__ void __launch_bounds__(CUDA_WALK_THREADS)
    gelu_forward(const struct cuda_args args)
{
    struct cuda_floats from = args.operand[GELU_FORWARD_X], to = args.operand[GELU_FORWARD_Y];
    cuda_dtype_fix<DTYPE>(&from, &to);
    cuda_walk_each(args.walk, [&](const struct cuda_span &span) {
        float x[CUDA_GROUP];
        cuda_read(from, span, x);
        UNROLLED(k, CUDA_GROUP)
            x[k] = gelu<KIND>(x[k]);
        cuda_write(to, span, x);
    });
}

template <enum gelu_kind KIND, int DTYPE>
static __global__ void __launch_bounds__(CUDA_WALK_THREADS)
    gelu_backward(const struct cuda_args args)
{
    struct cuda_floats of_dy = args.operand[GELU_BACKWARD_DY], of_x = args.operand[GELU_BACKWARD_X];
    struct cuda_floats to = args.operand[GELU_BACKWARD_DX];
    cuda_dtype_fix<DTYPE>(&of_dy, &of_x, &to);
    cuda_walk_each(args.walk, [&](const struct cuda_span &span) {
        float dy[CUDA_GROUP], x[CUDA_GROUP];
        cuda_read(of_dy, span, dy, of_x, span, x);
        UNROLLED(k, CUDA_GROUP)
            dy[k] *= gelu_slope<KIND>(x[k]);
        cuda_write(to, span, dy);
    });
}

/* Calls body(y, a, b) with the spans of this thread's groups of columns in a matrix of `columns`
 * columns, and in one of [a | b]. */
template <typename Body> DEVICE void swiglu_each(const struct cuda_args &args, Body body)
{
    const int64_t columns = args.columns, groups = (columns + CUDA_GROUP - 1) / CUDA_GROUP;
    const int64_t stride = (int64_t)gridDim.x * blockDim.x;
    for (int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; at < args.rows * groups;
         at += stride) {
        const int64_t c = at % groups * CUDA_GROUP, row = at / groups * columns;
        body(cuda_span_make(row + c, row + columns, args.walk.aligned),
             cuda_span_make(2 * row + c, 2 * row + columns, args.walk.aligned),
             cuda_span_make(2 * row + columns + c, 2 * (row + columns), args.walk.aligned));
    }
}

template <enum gate_kind GATE>
static __global__ void __launch_bounds__(CUDA_WALK_THREADS)
    swiglu_forward(const struct cuda_args args)
{
    const struct cuda_floats x = args.operand[SWIGLU_FORWARD_X];
    swiglu_each(args, [&](const struct cuda_span &of_y, const struct cuda_span &of_a,
                          const struct cuda_span &of_b) {
        float a[CUDA_GROUP], b[CUDA_GROUP];
        cuda_read(x, of_a, a, x, of_b, b);
        UNROLLED(k, CUDA_GROUP)
            a[k] = swiglu(a[k], b[k], GATE);
        cuda_write(args.operand[SWIGLU_FORWARD_Y], of_y, a);
    });
}

template <enum gate_kind GATE>
static __global__ void __launch_bounds__(CUDA_WALK_THREADS)
    swiglu_backward(const struct cuda_args args)
{
    const struct cuda_floats x = args.operand[SWIGLU_BACKWARD_X],
                             dx = args.operand[SWIGLU_BACKWARD_DX];
    swiglu_each(args, [&](const struct cuda_span &of_y, const struct cuda_span &of_a,
                          const struct cuda_span &of_b) {
        float dy[CUDA_GROUP], a[CUDA_GROUP], b[CUDA_GROUP];
        cuda_read(args.operand[SWIGLU_BACKWARD_DY], of_y, dy, x, of_a, a, x, of_b, b);
        UNROLLED(k, CUDA_GROUP)
            swiglu_gradients(dy[k], GATE, &a[k], &b[k]);
        cuda_write(dx, of_a, a);
        cuda_write(dx, of_b, b);
    });
}

/* The instance for the activation and, where all operands have the same 16-bit dtype, for it. */
#define GELU_INSTANCE(kernel, ...)                                        \
    cuda_by_dtype(cuda_dtype_common(args, __VA_ARGS__), [&](auto dtype) { \
        return args.attrs.gelu == GELU_TANH ? kernel<GELU_TANH, dtype()>  \
                                            : kernel<GELU_ERF, dtype()>;  \
    })
CUDA_WALK_LAUNCHER(gelu_forward, GELU_INSTANCE(gelu_forward, GELU_FORWARD_X, GELU_FORWARD_Y))
CUDA_WALK_LAUNCHER(gelu_backward, GELU_INSTANCE(gelu_backward, GELU_BACKWARD_DY, GELU_BACKWARD_X,
                                                GELU_BACKWARD_DX))
#define GATE_INSTANCE(kernel) (args.attrs.gate == GATE_GELU ? kernel<GATE_GELU> : kernel<GATE_SILU>)
CUDA_WALK_LAUNCHER(swiglu_forward, GATE_INSTANCE(swiglu_forward))
CUDA_WALK_LAUNCHER(swiglu_backward, GATE_INSTANCE(swiglu_backward))
