/* residual: r = x + y, elementwise in groups of eight; one addition in fp32, rounded once to the dtype of r.
 *
 * Bound by memory: each operand is moved once, as 128-bit words.
 */
#include "backends/cuda/cuda_residual.h"

static __global__ void __launch_bounds__(CUDA_WALK_THREADS) residual(struct cuda_residual_args args)
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

extern "C" cudaError_t cuda_launch_residual(cudaStream_t stream, const struct cuda_residual_args *args)
{
    return LAUNCH(residual, dim3((unsigned)args->walk.blocks), dim3(CUDA_WALK_THREADS), 0, stream, *args);
}
