/* residual: r = x + y, elementwise in groups of eight; one addition in fp32, rounded once to the dtype of r.
 *
 * Bound by memory: each operand is moved once, as 128-bit words.
 */
#include "backends/cuda/cuda_floats.h"

struct residual_args {
    struct cuda_floats x, y, r; /* r may be x or y */
    struct cuda_walk walk;
};

static __global__ void __launch_bounds__(CUDA_WALK_THREADS) residual(struct residual_args args)
{
    const int64_t end = args.walk.elements;
    for (int64_t first = cuda_walk_first(); first < end; first += cuda_walk_stride()) {
        const struct cuda_span span = cuda_span_make(first, end, args.walk.aligned);
        const struct cuda_group from_x = cuda_fetch(args.x, span), from_y = cuda_fetch(args.y, span);
        float x[CUDA_GROUP], y[CUDA_GROUP];
        cuda_unpack(from_x, args.x.dtype, x);
        cuda_unpack(from_y, args.y.dtype, y);
#pragma unroll
        for (int k = 0; k < CUDA_GROUP; k++)
            x[k] += y[k];
        cuda_write(args.r, span, x);
    }
}

CUDA_WALK_LAUNCHER(residual, residual_args, args->operand[RESIDUAL_X], args->operand[RESIDUAL_Y],
                   args->operand[RESIDUAL_R])
