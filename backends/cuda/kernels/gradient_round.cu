/* gradient_round: stores a micro-step's fp32 gradient in the bf16 gradient, or adds it, with stochastic rounding.
 *
 * Elementwise in groups of eight, which share a Philox block; exact: one addition, rounded to fp32, and integer
 * arithmetic.
 */
#include "backends/cuda/cuda_philox.h"

struct gradient_round_args {
    struct cuda_floats x, y; /* x is fp32, y bf16 */
    const union scalar_word *scalars;
    int64_t index_base;
    bool accumulate;
    struct cuda_walk walk;
};

static __global__ void __launch_bounds__(CUDA_WALK_THREADS) gradient_round(struct gradient_round_args args)
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
                x[k] = __fadd_rn(old[k], x[k]);
        }
        cuda_write_rounded(args.y, span, x, rounding, stream);
    }
}

CUDA_WALK_LAUNCHER(gradient_round, gradient_round_args, args->operand[GRADIENT_ROUND_X],
                   args->operand[GRADIENT_ROUND_Y], CUDA_POINTER(union scalar_word, GRADIENT_ROUND_SCALARS),
                   args->attrs.index_base, CUDA_ACCUMULATES(GRADIENT_ROUND_Y))
