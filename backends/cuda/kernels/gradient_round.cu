/* gradient_round: stores a micro-step's fp32 gradient in the bf16 gradient, or adds it, with stochastic rounding.
 *
 * Elementwise in groups of eight, which share a Philox block; exact: one addition, rounded to fp32, and integer
 * arithmetic.
 */
#include "backends/cuda/cuda_gradient_round.h"

#include "backends/cuda/cuda_rounded.h"

static __global__ void __launch_bounds__(CUDA_WALK_THREADS) gradient_round(struct cuda_gradient_round_args args)
{
    const struct cuda_rounding rounding = cuda_rounding_make(args.scalars, args.index_base);
    const uint32_t stream = ROUNDING_GRADIENT + 4u * args.scalars[SCALAR_MICRO_STEP].u;
    const int64_t end = args.walk.elements;
    for (int64_t first = cuda_walk_first(); first < end; first += cuda_walk_stride()) {
        const struct cuda_span span = cuda_span_make(first, end, args.walk.aligned);
        const struct cuda_group from = cuda_fetch(args.x, span);
        float x[CUDA_GROUP];
        cuda_unpack(from, args.x.dtype, x);
        if (args.accumulate) {
            float old[CUDA_GROUP];
            cuda_read(args.y, span, old);
#pragma unroll
            for (int k = 0; k < CUDA_GROUP; k++)
                x[k] = add_rn(old[k], x[k]);
        }
        cuda_write_rounded(args.y, span, x, rounding, stream);
    }
}

extern "C" cudaError_t cuda_launch_gradient_round(cudaStream_t stream, const struct cuda_gradient_round_args *args)
{
    return LAUNCH(gradient_round, dim3((unsigned)args->walk.blocks), dim3(CUDA_WALK_THREADS), 0, stream, *args);
}
