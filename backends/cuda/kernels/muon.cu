/* muon_momentum, muon_normalize and muon_step: Muon's elementwise ops, in groups of eight.  Exact: every operation is
 * rounded to fp32 by itself, in op.h's order, and what is stored in bf16 without a master is rounded stochastically.
 * The products between the steps are gemm's.
 */
#include "backends/cuda/cuda_muon.h"

#include "backends/cuda/cuda_rounded.h"

/* When the gradient is not finite, m stays and u becomes 0. */
DEVICE void ahead_clear(const struct cuda_muon_momentum_args &args)
{
    const float zero[CUDA_GROUP] = {0, 0, 0, 0, 0, 0, 0, 0};
    const int64_t end = args.walk.elements;
    for (int64_t first = cuda_walk_first(); first < end; first += cuda_walk_stride())
        cuda_write(args.ahead, cuda_span_make(first, end, args.walk.aligned), zero);
}

static __global__ void __launch_bounds__(CUDA_WALK_THREADS) muon_momentum(struct cuda_muon_momentum_args args)
{
    if (args.scalars[SCALAR_FOUND_INF].i != 0) {
        ahead_clear(args);
        return;
    }
    const struct cuda_rounding rounding = cuda_rounding_make(args.scalars, args.index_base);
    const float clip = args.scalars[SCALAR_CLIP].f, beta = args.beta, rest = sub_rn(1.0f, args.beta);
    const int64_t end = args.walk.elements;
    for (int64_t first = cuda_walk_first(); first < end; first += cuda_walk_stride()) {
        const struct cuda_span span = cuda_span_make(first, end, args.walk.aligned);
        const struct cuda_group from_grad = cuda_fetch(args.grad, span), from_m = cuda_fetch(args.momentum, span);
        float grad[CUDA_GROUP], m[CUDA_GROUP], ahead[CUDA_GROUP];
        cuda_unpack(from_grad, args.grad.dtype, grad);
        cuda_unpack(from_m, args.momentum.dtype, m);
#pragma unroll
        for (int k = 0; k < CUDA_GROUP; k++) {
            const float share = mul_rn(rest, mul_rn(grad[k], clip));
            m[k] = add_rn(mul_rn(beta, m[k]), share);
            ahead[k] = add_rn(mul_rn(beta, m[k]), share);
        }
        cuda_write(args.ahead, span, ahead);
        cuda_write_rounded(args.momentum, span, m, rounding, ROUNDING_M);
    }
}

static __global__ void __launch_bounds__(CUDA_WALK_THREADS) muon_normalize(struct cuda_muon_normalize_args args)
{
    const float below = add_rn(sqrt_rn(*args.sum), MUON_NORM_EPSILON);
    const int64_t end = args.walk.elements;
    for (int64_t first = cuda_walk_first(); first < end; first += cuda_walk_stride()) {
        const struct cuda_span span = cuda_span_make(first, end, args.walk.aligned);
        float x[CUDA_GROUP];
        cuda_read(args.x, span, x);
#pragma unroll
        for (int k = 0; k < CUDA_GROUP; k++)
            x[k] = div_rn(x[k], below);
        cuda_write(args.y, span, x);
    }
}

static __global__ void __launch_bounds__(CUDA_WALK_THREADS) muon_step(struct cuda_muon_step_args args)
{
    if (args.scalars[SCALAR_FOUND_INF].i != 0)
        return;
    const struct cuda_rounding rounding = cuda_rounding_make(args.scalars, args.index_base);
    const float rate = mul_rn(args.scalars[SCALAR_LEARNING_RATE].f, args.alpha);
    const bool mastered = args.master.memory != NULL;
    const struct cuda_floats weights = mastered ? args.master : args.param;
    const int64_t end = args.walk.elements;
    for (int64_t first = cuda_walk_first(); first < end; first += cuda_walk_stride()) {
        const struct cuda_span span = cuda_span_make(first, end, args.walk.aligned);
        const struct cuda_group from_o = cuda_fetch(args.direction, span), from_weights = cuda_fetch(weights, span);
        float o[CUDA_GROUP], p[CUDA_GROUP];
        cuda_unpack(from_o, args.direction.dtype, o);
        cuda_unpack(from_weights, weights.dtype, p);
#pragma unroll
        for (int k = 0; k < CUDA_GROUP; k++) {
            const float move = add_rn(mul_rn(args.scale, o[k]), mul_rn(args.weight_decay, p[k]));
            p[k] = sub_rn(p[k], mul_rn(rate, move));
        }
        if (mastered) {
            cuda_write(args.master, span, p);
            cuda_write(args.param, span, p);
        } else {
            cuda_write_rounded(args.param, span, p, rounding, ROUNDING_PARAM);
        }
    }
}

extern "C" cudaError_t cuda_launch_muon_momentum(cudaStream_t stream, const struct cuda_muon_momentum_args *args)
{
    return LAUNCH(muon_momentum, dim3((unsigned)args->walk.blocks), dim3(CUDA_WALK_THREADS), 0, stream, *args);
}

extern "C" cudaError_t cuda_launch_muon_normalize(cudaStream_t stream, const struct cuda_muon_normalize_args *args)
{
    return LAUNCH(muon_normalize, dim3((unsigned)args->walk.blocks), dim3(CUDA_WALK_THREADS), 0, stream, *args);
}

extern "C" cudaError_t cuda_launch_muon_step(cudaStream_t stream, const struct cuda_muon_step_args *args)
{
    return LAUNCH(muon_step, dim3((unsigned)args->walk.blocks), dim3(CUDA_WALK_THREADS), 0, stream, *args);
}
