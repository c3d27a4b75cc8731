/* gelu_forward and gelu_backward, erf and tanh, and swiglu: elementwise in groups of eight, one read of each operand
 * and one write.
 *
 * erf: y = x P(X <= x), from the normal distribution's tail beyond |x|, which one exponential and one reciprocal make.
 * tanh: y = x sigmoid(2u), u = sqrt(2/pi) (x + 0.044715 x^3), which is x/2 (1 + tanh u) without its cancellation.  fp32
 * throughout; gelu's kernels have no IEEE division and no exponential that is exact in its subnormals, because their
 * instructions would take longer than the memory (tests/e2e/cuda_registers.py counts them).
 */
#include "backends/cuda/cuda_floats.h"

struct gelu_args {
    struct cuda_floats dy, x; /* dy: backward only */
    struct cuda_floats out;   /* y, or dx; may be dy or x */
    struct cuda_walk walk;
};

struct swiglu_args {
    struct cuda_floats dy, x; /* dy: backward only */
    struct cuda_floats out;   /* y [rows, columns], or dx [rows, 2 columns] */
    int64_t rows, columns;
    struct cuda_walk walk; /* aligned: every group of every row is */
};

#define LOG2_E 1.44269504088896f
#define SQRT_2_OVER_PI 0.797884560802865f
#define INVERSE_SQRT_2PI 0.398942280401433f
#define CUBIC 0.044715f
#define EXPONENT_MAX 87.0f  /* e^87 is finite in fp32 */
#define MAGNITUDE_MAX 14.0f /* P(X > 14) is 0 in fp32 */

/* Returns P(X > a) for a >= 0, and sets *kernel to e^(-a^2 / 2).  With r = 1 / (1 + 0.4 a), P(X > a) is e^(-a^2 / 2) r
 * times a function of r that is nearly a polynomial.  This one has a relative error of 3.5e-8 e^(a^2 / 8), at most
 * 2.1e-6 (weighted minimax, by Remez' algorithm). */
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
    const float by_cube = -2.0f * LOG2_E * SQRT_2_OVER_PI * CUBIC, by_x = -2.0f * LOG2_E * SQRT_2_OVER_PI;
    return fast_reciprocal(1.0f + fast_exp2(x * fmaf(x * x, by_cube, by_x)));
}

/* For erf the positive part of x less |x| P(X > |x|); the positive part by halves, so that NaN and infinity remain. */
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
        return fmaf(x * rest, inner, s); /* in this order: the square may be large, and the rest is 0 then */
    }
    float kernel;
    const float a = fabsf(x), tail = normal_tail(a, &kernel), slope = fmaf(-a * INVERSE_SQRT_2PI, kernel, tail);
    return x > 0.0f ? 1.0f - slope : slope;
}

template <enum gelu_kind KIND, int DTYPE>
static __global__ void __launch_bounds__(CUDA_WALK_THREADS) gelu_forward(struct gelu_args args)
{
    cuda_dtype_fix<DTYPE>(&args.x, &args.out);
    const int64_t end = args.walk.elements;
    for (int64_t first = cuda_walk_first(); first < end; first += cuda_walk_stride()) {
        const struct cuda_span span = cuda_span_make(first, end, args.walk.aligned);
        float x[CUDA_GROUP];
        cuda_read(args.x, span, x);
#pragma unroll
        for (int k = 0; k < CUDA_GROUP; k++)
            x[k] = gelu<KIND>(x[k]);
        cuda_write(args.out, span, x);
    }
}

template <enum gelu_kind KIND, int DTYPE>
static __global__ void __launch_bounds__(CUDA_WALK_THREADS) gelu_backward(struct gelu_args args)
{
    cuda_dtype_fix<DTYPE>(&args.dy, &args.x, &args.out);
    const int64_t end = args.walk.elements;
    for (int64_t first = cuda_walk_first(); first < end; first += cuda_walk_stride()) {
        const struct cuda_span span = cuda_span_make(first, end, args.walk.aligned);
        const struct cuda_group from_dy = cuda_fetch(args.dy, span), from_x = cuda_fetch(args.x, span);
        float dy[CUDA_GROUP], x[CUDA_GROUP];
        cuda_unpack(from_dy, args.dy.dtype, dy);
        cuda_unpack(from_x, args.x.dtype, x);
#pragma unroll
        for (int k = 0; k < CUDA_GROUP; k++)
            dy[k] *= gelu_slope<KIND>(x[k]);
        cuda_write(args.out, span, dy);
    }
}

/* e^-a, capped where it would overflow; NaN stays. */
DEVICE float logistic_exponential(float a)
{
    return expf(-a > EXPONENT_MAX ? EXPONENT_MAX : -a);
}

/* Eight columns of row n: where they are in a matrix of `columns` columns, and in one of [a | b]. */
struct swiglu_place {
    struct cuda_span y, a, b;
};

DEVICE struct swiglu_place swiglu_place_of(const struct swiglu_args &args, int64_t group)
{
    const int64_t groups = (args.columns + CUDA_GROUP - 1) / CUDA_GROUP;
    const int64_t n = group / groups, c = group % groups * CUDA_GROUP, row = n * args.columns;
    struct swiglu_place place;
    place.y = cuda_span_make(row + c, row + args.columns, args.walk.aligned);
    place.a = cuda_span_make(2 * row + c, 2 * row + args.columns, args.walk.aligned);
    place.b = cuda_span_make(2 * row + args.columns + c, 2 * (row + args.columns), args.walk.aligned);
    return place;
}

DEVICE int64_t swiglu_groups(const struct swiglu_args &args)
{
    return args.rows * ((args.columns + CUDA_GROUP - 1) / CUDA_GROUP);
}

static __global__ void __launch_bounds__(CUDA_WALK_THREADS) swiglu_forward(struct swiglu_args args)
{
    const int64_t end = swiglu_groups(args), stride = (int64_t)gridDim.x * blockDim.x;
    for (int64_t group = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; group < end; group += stride) {
        const struct swiglu_place place = swiglu_place_of(args, group);
        const struct cuda_group from_a = cuda_fetch(args.x, place.a), from_b = cuda_fetch(args.x, place.b);
        float a[CUDA_GROUP], b[CUDA_GROUP];
        cuda_unpack(from_a, args.x.dtype, a);
        cuda_unpack(from_b, args.x.dtype, b);
#pragma unroll
        for (int k = 0; k < CUDA_GROUP; k++)
            a[k] = a[k] / (1.0f + logistic_exponential(a[k])) * b[k];
        cuda_write(args.out, place.y, a);
    }
}

/* 1 - s(a) is computed as e^-a s(a), which does not cancel. */
static __global__ void __launch_bounds__(CUDA_WALK_THREADS) swiglu_backward(struct swiglu_args args)
{
    const int64_t end = swiglu_groups(args), stride = (int64_t)gridDim.x * blockDim.x;
    for (int64_t group = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; group < end; group += stride) {
        const struct swiglu_place place = swiglu_place_of(args, group);
        const struct cuda_group from_dy = cuda_fetch(args.dy, place.y), from_a = cuda_fetch(args.x, place.a),
                                from_b = cuda_fetch(args.x, place.b);
        float dy[CUDA_GROUP], a[CUDA_GROUP], b[CUDA_GROUP];
        cuda_unpack(from_dy, args.dy.dtype, dy);
        cuda_unpack(from_a, args.x.dtype, a);
        cuda_unpack(from_b, args.x.dtype, b);
#pragma unroll
        for (int k = 0; k < CUDA_GROUP; k++) {
            const float e = logistic_exponential(a[k]), s = 1.0f / (1.0f + e);
            const float da = dy[k] * b[k] * s * (1.0f + a[k] * (e * s));
            b[k] = dy[k] * (a[k] * s);
            a[k] = da;
        }
        cuda_write(args.out, place.a, a);
        cuda_write(args.out, place.b, b);
    }
}

/* The instance for the activation and, where all operands have the same 16-bit dtype, for it. */
#define GELU_INSTANCE(kernel, ...)                                                                     \
    cuda_by_dtype(cuda_dtype_common(args, __VA_ARGS__), [args](auto dtype) {                           \
        return args->attrs.gelu == GELU_TANH ? kernel<GELU_TANH, dtype()> : kernel<GELU_ERF, dtype()>; \
    })
CUDA_WALK_LAUNCHER_OF(gelu_forward, GELU_INSTANCE(gelu_forward, GELU_FORWARD_X, GELU_FORWARD_Y), gelu_args,
                      {NULL, DTYPE_F32}, args->operand[GELU_FORWARD_X], args->operand[GELU_FORWARD_Y])
CUDA_WALK_LAUNCHER_OF(gelu_backward, GELU_INSTANCE(gelu_backward, GELU_BACKWARD_DY, GELU_BACKWARD_X, GELU_BACKWARD_DX),
                      gelu_args, args->operand[GELU_BACKWARD_DY], args->operand[GELU_BACKWARD_X],
                      args->operand[GELU_BACKWARD_DX])
CUDA_WALK_LAUNCHER(swiglu_forward, swiglu_args, {NULL, DTYPE_F32}, args->operand[SWIGLU_FORWARD_X],
                   args->operand[SWIGLU_FORWARD_Y], args->rows, args->columns)
CUDA_WALK_LAUNCHER(swiglu_backward, swiglu_args, args->operand[SWIGLU_BACKWARD_DY], args->operand[SWIGLU_BACKWARD_X],
                   args->operand[SWIGLU_BACKWARD_DX], args->rows, args->columns)
