/* gelu_forward and gelu_backward, erf and tanh, and swiglu: elementwise in groups of eight, one
 * read of each operand and one write, in fp32 throughout.
 */
#include "backends/cuda/kernels/gelu_fast.h"

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
            a[k] = gated<GATE>(a[k], b[k]);
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
            gated_slopes<GATE>(dy[k], &a[k], &b[k]);
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
