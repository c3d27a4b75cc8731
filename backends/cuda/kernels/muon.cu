/* muon_momentum, muon_normalize and muon_step: Muon's elementwise ops, in groups of eight.  Exact:
 * every operation is rounded to fp32 by itself, in op.h's order, and what is stored in bf16 without
 * a master is rounded stochastically. The products between the steps are gemm's.
 */
#include "backends/cuda/cuda_floats.h"

/* When the gradient is not finite, m stays and u becomes 0. */
static __global__ void __launch_bounds__(CUDA_WALK_THREADS)
    muon_momentum(const struct cuda_args args)
{
    const union scalar_word *scalars = CUDA_POINTER(const union scalar_word, MUON_MOMENTUM_SCALARS);
    const struct rounding rounding = rounding_of(scalars, args.attrs.index_base);
    const bool skips = scalars[SCALAR_FOUND_INF].i != 0;
    const float clip = scalars[SCALAR_CLIP].f, beta = scalars[SCALAR_MUON_MOMENTUM].f,
                rest = __fsub_rn(1.0f, beta);
    cuda_walk_each(args.walk, [&](const struct cuda_span &span) {
        float grad[CUDA_GROUP], m[CUDA_GROUP], ahead[CUDA_GROUP] = {0, 0, 0, 0, 0, 0, 0, 0};
        if (!skips) {
            cuda_read(args.operand[MUON_MOMENTUM_GRAD], span, grad, args.operand[MUON_MOMENTUM_M],
                      span, m);
            UNROLLED(k, CUDA_GROUP) {
                const float share = __fmul_rn(rest, __fmul_rn(grad[k], clip));
                m[k] = __fadd_rn(__fmul_rn(beta, m[k]), share);
                ahead[k] = __fadd_rn(__fmul_rn(beta, m[k]), share);
            }
            cuda_write_rounded(args.operand[MUON_MOMENTUM_M], span, m, rounding, ROUNDING_M);
        }
        cuda_write(args.operand[MUON_MOMENTUM_U], span, ahead);
    });
}

static __global__ void __launch_bounds__(CUDA_WALK_THREADS)
    muon_normalize(const struct cuda_args args)
{
    const float below =
        __fadd_rn(__fsqrt_rn(*CUDA_POINTER(const float, MUON_NORMALIZE_SUM)), MUON_NORM_EPSILON);
    cuda_walk_each(args.walk, [&](const struct cuda_span &span) {
        float x[CUDA_GROUP];
        cuda_read(args.operand[MUON_NORMALIZE_X], span, x);
        UNROLLED(k, CUDA_GROUP)
            x[k] = __fdiv_rn(x[k], below);
        cuda_write(args.operand[MUON_NORMALIZE_Y], span, x);
    });
}

static __global__ void __launch_bounds__(CUDA_WALK_THREADS) muon_step(const struct cuda_args args)
{
    const union scalar_word *scalars = CUDA_POINTER(const union scalar_word, MUON_STEP_SCALARS);
    if (scalars[SCALAR_FOUND_INF].i != 0)
        return;
    const struct cuda_floats param = args.operand[MUON_STEP_PARAM],
                             master = args.operand[MUON_STEP_MASTER];
    const struct cuda_floats weights = master.memory != NULL ? master : param;
    const struct rounding rounding = rounding_of(scalars, args.attrs.index_base);
    const float rate = __fmul_rn(scalars[SCALAR_LEARNING_RATE].f, args.attrs.alpha);
    cuda_walk_each(args.walk, [&](const struct cuda_span &span) {
        float o[CUDA_GROUP], p[CUDA_GROUP];
        cuda_read(args.operand[MUON_STEP_O], span, o, weights, span, p);
        UNROLLED(k, CUDA_GROUP) {
            const float decay = __fmul_rn(args.attrs.weight_decay, p[k]);
            p[k] = __fsub_rn(p[k],
                             __fmul_rn(rate, __fadd_rn(__fmul_rn(args.attrs.value, o[k]), decay)));
        }
        if (master.memory != NULL) {
            cuda_write(master, span, p);
            cuda_write(param, span, p);
        } else {
            cuda_write_rounded(param, span, p, rounding, ROUNDING_PARAM);
        }
    });
}

CUDA_WALK_LAUNCHER(muon_momentum, muon_momentum)
CUDA_WALK_LAUNCHER(muon_normalize, muon_normalize)
CUDA_WALK_LAUNCHER(muon_step, muon_step)
