/* blend: y = alpha x + beta z, elementwise in groups of eight.  Exact: both products and the sum are rounded to fp32
 * without fusing, and the result once more if y has 16 bits.  A thread reads a whole group before it writes one, so
 * that y may be x or z.
 */
#include "backends/cuda/cuda_floats.h"

struct blend_args {
    struct cuda_floats x, z, y; /* y may be x or z */
    float alpha, beta;
    struct cuda_walk walk;
};

static __global__ void __launch_bounds__(CUDA_WALK_THREADS) blend(struct blend_args args)
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
            x[k] = __fadd_rn(__fmul_rn(args.alpha, x[k]), __fmul_rn(args.beta, z[k]));
        cuda_write(args.y, span, x);
    }
}

CUDA_WALK_LAUNCHER(blend, blend_args, args->operand[BLEND_X], args->operand[BLEND_Z], args->operand[BLEND_Y],
                   args->attrs.alpha, args->attrs.beta)
