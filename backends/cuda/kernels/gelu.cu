/* gelu_forward and gelu_backward, erf and tanh: elementwise in groups of eight, one read of each operand and one write.
 *
 * erf: y = x P(X <= x); the normal distribution is computed here, so that the relative error is small in both tails.
 * tanh: y = x sigmoid(2u), u = sqrt(2/pi) (x + 0.044715 x^3), which is x/2 (1 + tanh u) without its cancellation.  fp32
 * throughout.
 */
#include "backends/cuda/cuda_floats.h"

struct gelu_args {
    struct cuda_floats dy, x; /* dy: backward only */
    struct cuda_floats out;   /* y, or dx; may be dy or x */
    enum gelu_kind kind;
    struct cuda_walk walk;
};

struct swiglu_args {
    struct cuda_floats dy, x; /* dy: backward only */
    struct cuda_floats out;   /* y [rows, columns], or dx [rows, 2 columns] */
    int64_t rows, columns;
    struct cuda_walk walk; /* aligned: every group of every row is */
};

#define SQRT_2_OVER_PI 0.797884560802865f
#define INVERSE_SQRT_2PI 0.398942280401433f
#define INVERSE_SQRT_2 0.707106781186548f
#define CUBIC 0.044715f
#define EXPONENT_MAX 87.0f  /* e^87 is finite in fp32 */
#define MAGNITUDE_MAX 14.6f /* the distribution is 0 in fp32 beyond -14.6 */

/* e^(-a^2 / 2) for 0 <= a <= 14.6 or NaN.  a^2 is split into two parts, the first exact, so that its rounding error
 * does not grow with the exponent; the second, below 0.06, goes through the series of e^low - 1. */
DEVICE float normal_kernel(float a)
{
    const float high = __uint_as_float(__float_as_uint(a) & 0xfffff000u);
    const float low = -0.5f * ((a - high) * (a + high));
    const float e = expf(-0.5f * (high * high));
    const float rest = low * (1.0f + low * (0.5f + low * (0.166666667f + low * 0.0416666667f)));
    return e + e * rest;
}

/* *cdf = P(X <= x), *kernel = e^(-x^2 / 2).  The tail is kernel / 2 times e^(t^2) erfc(t) (1 + 2t) / (1 + 2t), t = |x|
 * / sqrt 2; the polynomial in (t - 2.5) / (t + 2.5) is the Chebyshev interpolation of the cpu backend (relative error
 * 6e-9). */
DEVICE void normal(float x, float *cdf, float *kernel)
{
    const float magnitude = fabsf(x);
    const float a = magnitude > MAGNITUDE_MAX ? MAGNITUDE_MAX : magnitude;
    const float t = a * INVERSE_SQRT_2;
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
    *kernel = normal_kernel(a);
    const float tail = 0.5f * *kernel * p / (1.0f + 2.0f * t);
    *cdf = x > 0.0f ? 1.0f - tail : tail;
}

/* e^(-2u), capped where it would overflow; NaN stays. */
DEVICE float tanh_exponential(float x)
{
    const float exponent = -2.0f * SQRT_2_OVER_PI * (x + CUBIC * x * x * x);
    return expf(exponent > EXPONENT_MAX ? EXPONENT_MAX : exponent);
}

DEVICE float gelu(float x, enum gelu_kind kind)
{
    if (kind == GELU_TANH)
        return x / (1.0f + tanh_exponential(x));
    float cdf, kernel;
    normal(x, &cdf, &kernel);
    return x * cdf;
}

/* The derivative at x. */
DEVICE float gelu_slope(float x, enum gelu_kind kind)
{
    if (kind == GELU_TANH) {
        const float e = tanh_exponential(x), sigmoid = 1.0f / (1.0f + e);
        const float inner = 2.0f * SQRT_2_OVER_PI * (1.0f + 3.0f * CUBIC * x * x);
        return sigmoid + x * inner * (sigmoid * (e * sigmoid));
    }
    float cdf, kernel;
    normal(x, &cdf, &kernel);
    return cdf + x * INVERSE_SQRT_2PI * kernel;
}

static __global__ void __launch_bounds__(CUDA_WALK_THREADS) gelu_forward(struct gelu_args args)
{
    const int64_t end = args.walk.elements;
    for (int64_t first = cuda_walk_first(); first < end; first += cuda_walk_stride()) {
        const struct cuda_span span = cuda_span_make(first, end, args.walk.aligned);
        float x[CUDA_GROUP];
        cuda_read(args.x, span, x);
#pragma unroll
        for (int k = 0; k < CUDA_GROUP; k++)
            x[k] = gelu(x[k], args.kind);
        cuda_write(args.out, span, x);
    }
}

static __global__ void __launch_bounds__(CUDA_WALK_THREADS) gelu_backward(struct gelu_args args)
{
    const int64_t end = args.walk.elements;
    for (int64_t first = cuda_walk_first(); first < end; first += cuda_walk_stride()) {
        const struct cuda_span span = cuda_span_make(first, end, args.walk.aligned);
        const struct cuda_group from_dy = cuda_fetch(args.dy, span), from_x = cuda_fetch(args.x, span);
        float dy[CUDA_GROUP], x[CUDA_GROUP];
        cuda_unpack(from_dy, args.dy.dtype, dy);
        cuda_unpack(from_x, args.x.dtype, x);
#pragma unroll
        for (int k = 0; k < CUDA_GROUP; k++)
            dy[k] *= gelu_slope(x[k], args.kind);
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

CUDA_WALK_LAUNCHER(gelu_forward, gelu_args, {NULL, DTYPE_F32}, args->operand[GELU_FORWARD_X],
                   args->operand[GELU_FORWARD_Y], args->attrs.gelu)
CUDA_WALK_LAUNCHER(gelu_backward, gelu_args, args->operand[GELU_BACKWARD_DY], args->operand[GELU_BACKWARD_X],
                   args->operand[GELU_BACKWARD_DX], args->attrs.gelu)
CUDA_WALK_LAUNCHER(swiglu_forward, swiglu_args, {NULL, DTYPE_F32}, args->operand[SWIGLU_FORWARD_X],
                   args->operand[SWIGLU_FORWARD_Y], args->rows, args->columns)
CUDA_WALK_LAUNCHER(swiglu_backward, swiglu_args, args->operand[SWIGLU_BACKWARD_DY], args->operand[SWIGLU_BACKWARD_X],
                   args->operand[SWIGLU_BACKWARD_DX], args->rows, args->columns)
