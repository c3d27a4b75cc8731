/* muon_momentum, muon_normalize and muon_step: Muon's elementwise ops, in groups of eight.  Exact: every operation is
 * rounded to fp32 by itself, in op.h's order, and what is stored in bf16 without a master is rounded stochastically.
 * The products between the steps are gemm's.
 */
#include "backends/cuda/cuda_philox.h"

struct muon_momentum_args {
    struct cuda_floats grad, momentum, ahead; /* ahead, u, is fp32 */
    const union scalar_word *scalars;
    int64_t index_base;
    struct cuda_walk walk;
};

struct muon_normalize_args {
    struct cuda_floats x, y;
    const float *sum;
    struct cuda_walk walk;
};

struct muon_step_args {
    struct cuda_floats direction, param, master; /* master: NULL when absent */
    const union scalar_word *scalars;
    float alpha, scale, weight_decay;
    int64_t index_base;
    struct cuda_walk walk;
};

/* When the gradient is not finite, m stays and u becomes 0. */
DEVICE void ahead_clear(const struct muon_momentum_args &args)
{
    const float zero[CUDA_GROUP] = {0, 0, 0, 0, 0, 0, 0, 0};
    const int64_t end = args.walk.elements;
    for (int64_t first = cuda_walk_first(); first < end; first += cuda_walk_stride())
        cuda_write(args.ahead, cuda_span_make(first, end, args.walk.aligned), zero);
}

static __global__ void __launch_bounds__(CUDA_WALK_THREADS) muon_momentum(struct muon_momentum_args args)
{
    if (args.scalars[SCALAR_FOUND_INF].i != 0) {
        ahead_clear(args);
        return;
    }
    const struct cuda_rounding rounding = cuda_rounding_make(args.scalars, args.index_base);
    const float clip = args.scalars[SCALAR_CLIP].f, beta = args.scalars[SCALAR_MUON_MOMENTUM].f;
    const float rest = __fsub_rn(1.0f, beta);
    const int64_t end = args.walk.elements;
    for (int64_t first = cuda_walk_first(); first < end; first += cuda_walk_stride()) {
        const struct cuda_span span = cuda_span_make(first, end, args.walk.aligned);
        const struct cuda_group from_grad = cuda_fetch(args.grad, span), from_m = cuda_fetch(args.momentum, span);
        float grad[CUDA_GROUP], m[CUDA_GROUP], ahead[CUDA_GROUP];
        cuda_unpack(from_grad, args.grad.dtype, grad);
        cuda_unpack(from_m, args.momentum.dtype, m);
#pragma unroll
        for (int k = 0; k < CUDA_GROUP; k++) {
            const float share = __fmul_rn(rest, __fmul_rn(grad[k], clip));
            m[k] = __fadd_rn(__fmul_rn(beta, m[k]), share);
            ahead[k] = __fadd_rn(__fmul_rn(beta, m[k]), share);
        }
        cuda_write(args.ahead, span, ahead);
        cuda_write_rounded(args.momentum, span, m, rounding, ROUNDING_M);
    }
}

static __global__ void __launch_bounds__(CUDA_WALK_THREADS) muon_normalize(struct muon_normalize_args args)
{
    const float below = __fadd_rn(__fsqrt_rn(*args.sum), MUON_NORM_EPSILON);
    const int64_t end = args.walk.elements;
    for (int64_t first = cuda_walk_first(); first < end; first += cuda_walk_stride()) {
        const struct cuda_span span = cuda_span_make(first, end, args.walk.aligned);
        float x[CUDA_GROUP];
        cuda_read(args.x, span, x);
#pragma unroll
        for (int k = 0; k < CUDA_GROUP; k++)
            x[k] = __fdiv_rn(x[k], below);
        cuda_write(args.y, span, x);
    }
}

static __global__ void __launch_bounds__(CUDA_WALK_THREADS) muon_step(struct muon_step_args args)
{
    if (args.scalars[SCALAR_FOUND_INF].i != 0)
        return;
    const struct cuda_rounding rounding = cuda_rounding_make(args.scalars, args.index_base);
    const float rate = __fmul_rn(args.scalars[SCALAR_LEARNING_RATE].f, args.alpha);
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
            const float move = __fadd_rn(__fmul_rn(args.scale, o[k]), __fmul_rn(args.weight_decay, p[k]));
            p[k] = __fsub_rn(p[k], __fmul_rn(rate, move));
        }
        if (mastered) {
            cuda_write(args.master, span, p);
            cuda_write(args.param, span, p);
        } else {
            cuda_write_rounded(args.param, span, p, rounding, ROUNDING_PARAM);
        }
    }
}

CUDA_WALK_LAUNCHER(muon_momentum, muon_momentum_args, args->operand[MUON_MOMENTUM_GRAD], args->operand[MUON_MOMENTUM_M],
                   args->operand[MUON_MOMENTUM_U], CUDA_POINTER(union scalar_word, MUON_MOMENTUM_SCALARS),
                   args->attrs.index_base)
CUDA_WALK_LAUNCHER(muon_normalize, muon_normalize_args, args->operand[MUON_NORMALIZE_X],
                   args->operand[MUON_NORMALIZE_Y], CUDA_POINTER(const float, MUON_NORMALIZE_SUM))
CUDA_WALK_LAUNCHER(muon_step, muon_step_args, args->operand[MUON_STEP_O], args->operand[MUON_STEP_PARAM],
                   args->operand[MUON_STEP_MASTER], CUDA_POINTER(union scalar_word, MUON_STEP_SCALARS),
                   args->attrs.alpha, args->attrs.value, args->attrs.weight_decay, args->attrs.index_base)
