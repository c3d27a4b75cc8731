/* blend: y = alpha x + beta z, elementwise in groups of eight.  Exact: both products and the sum are rounded to fp32
 * without fusing, and the result once more if y has 16 bits.  A thread reads a whole group before it writes one, so
 * that y may be x or z.
 */
#include "backends/cuda/cuda_blend.h"

static __global__ void __launch_bounds__(CUDA_WALK_THREADS) blend(struct cuda_blend_args args)
{
    const int64_t end = args.walk.elements;
    for (int64_t first = cuda_walk_first(); first < end; first += cuda_walk_stride()) {
        const struct cuda_span span = cuda_span_make(first, end, args.walk.aligned);
        const struct cuda_group from_x = cuda_fetch(args.x, span), from_z = cuda_fetch(args.z, span);
        float x[CUDA_GROUP], z[CUDA_GROUP];
        cuda_unpack(from_x, args.x.dtype, x);
        cuda_unpack(from_z, args.z.dtype, z);
#pragma unroll
        for (int k = 0; k < CUDA_GROUP; k++)
            x[k] = add_rn(mul_rn(args.alpha, x[k]), mul_rn(args.beta, z[k]));
        cuda_write(args.y, span, x);
    }
}

extern "C" cudaError_t cuda_launch_blend(cudaStream_t stream, const struct cuda_blend_args *args)
{
    return LAUNCH(blend, dim3((unsigned)args->walk.blocks), dim3(CUDA_WALK_THREADS), 0, stream, *args);
}
