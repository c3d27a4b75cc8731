/* fill, copy, residual, blend, gradient_round, sum_parts and dropout, from any float dtype to any,
 * in groups of eight.
 *
 * Bound by memory: each operand is moved once, as 128-bit words.  Arithmetic is fp32, and a result
 * is rounded once.  A thread reads a whole group before it writes one, so that a result may replace
 * an input.
 */
#include "backends/cuda/cuda_floats.h"

static __global__ void __launch_bounds__(CUDA_WALK_THREADS) fill(const struct cuda_args args)
{
    float value[CUDA_GROUP];
    UNROLLED(k, CUDA_GROUP)
        value[k] = args.attrs.value;
    const struct cuda_group group = cuda_pack(args.operand[FILL_Y].dtype, value);
    cuda_walk_each(args.walk, [&](const struct cuda_span &span) {
        cuda_put(args.operand[FILL_Y], span, group);
    });
}

/* A copy between equal dtypes moves the bits. */
static __global__ void __launch_bounds__(CUDA_WALK_THREADS) copy(const struct cuda_args args)
{
    const struct cuda_floats x = args.operand[COPY_X], y = args.operand[COPY_Y];
    cuda_walk_each(args.walk, [&](const struct cuda_span &span) {
        const struct cuda_group from = cuda_fetch(x, span);
        if (x.dtype == y.dtype && !CUDA_ACCUMULATES(COPY_Y)) {
            cuda_put(y, span, from);
            return;
        }
        float value[CUDA_GROUP], old[CUDA_GROUP] = {0, 0, 0, 0, 0, 0, 0, 0};
        cuda_unpack(from, x.dtype, value);
        if (CUDA_ACCUMULATES(COPY_Y)) {
            cuda_read(y, span, old);
            UNROLLED(k, CUDA_GROUP)
                value[k] += old[k];
        }
        cuda_write(y, span, value);
    });
}

static __global__ void __launch_bounds__(CUDA_WALK_THREADS) residual(const struct cuda_args args)
{
    cuda_walk_each(args.walk, [&](const struct cuda_span &span) {
        float x[CUDA_GROUP], y[CUDA_GROUP];
        cuda_read(args.operand[RESIDUAL_X], span, x, args.operand[RESIDUAL_Y], span, y);
        UNROLLED(k, CUDA_GROUP)
            x[k] += y[k];
        cuda_write(args.operand[RESIDUAL_R], span, x);
    });
}

/* Exact: both products and the sum are rounded to fp32 without fusing. */
static __global__ void __launch_bounds__(CUDA_WALK_THREADS) blend(const struct cuda_args args)
{
    const float alpha = args.attrs.alpha, beta = args.attrs.beta;
    cuda_walk_each(args.walk, [&](const struct cuda_span &span) {
        float x[CUDA_GROUP], z[CUDA_GROUP];
        cuda_read(args.operand[BLEND_X], span, x, args.operand[BLEND_Z], span, z);
        UNROLLED(k, CUDA_GROUP)
            x[k] = __fadd_rn(__fmul_rn(alpha, x[k]), __fmul_rn(beta, z[k]));
        cuda_write(args.operand[BLEND_Y], span, x);
    });
}

/* Stores a micro-step's fp32 gradient in the bf16 gradient, or adds it, with stochastic rounding.
 * Exact: one addition, rounded to fp32, and integer arithmetic. */
static __global__ void __launch_bounds__(CUDA_WALK_THREADS)
    gradient_round(const struct cuda_args args)
{
    const struct cuda_floats y = args.operand[GRADIENT_ROUND_Y];
    const union scalar_word *scalars =
        CUDA_POINTER(const union scalar_word, GRADIENT_ROUND_SCALARS);
    const struct rounding rounding = rounding_of(scalars, args.attrs.index_base);
    const uint32_t stream = ROUNDING_GRADIENT + 4u * scalars[SCALAR_MICRO_STEP].u;
    cuda_walk_each(args.walk, [&](const struct cuda_span &span) {
        float x[CUDA_GROUP], old[CUDA_GROUP];
        cuda_read(args.operand[GRADIENT_ROUND_X], span, x);
        if (CUDA_ACCUMULATES(GRADIENT_ROUND_Y)) {
            cuda_read(y, span, old);
            UNROLLED(k, CUDA_GROUP)
                x[k] = __fadd_rn(old[k], x[k]);
        }
        cuda_write_rounded(y, span, x, rounding, stream);
    });
}

/* Exact: the parts are added in their order. */
static __global__ void __launch_bounds__(CUDA_WALK_THREADS) sum_parts(const struct cuda_args args)
{
    const struct cuda_floats y = args.operand[SUM_PARTS_Y];
    cuda_walk_each(args.walk, [&](const struct cuda_span &span) {
        float sum[CUDA_GROUP], part[CUDA_GROUP];
        bool any = CUDA_ACCUMULATES(SUM_PARTS_Y);
        if (any)
            cuda_read(y, span, sum);
        for (int64_t p = 0; p < args.parts; p++, any = true) {
            const struct cuda_span row = {(p - (p > args.attrs.from)) * args.walk.elements +
                                              span.first,
                                          span.count, span.whole};
            if (p == args.attrs.from)
                cuda_read(args.operand[SUM_PARTS_X], span, part);
            else
                cuda_read(args.operand[SUM_PARTS_OTHERS], row, part);
            UNROLLED(k, CUDA_GROUP)
                sum[k] = any ? __fadd_rn(sum[k], part[k]) : part[k];
        }
        cuda_write(y, span, sum);
    });
}

/* y = x times a mask that is a pure function of seed, step, sample, site and element (ops/op.h). It
 * is its own backward.  Elements are numbered through the rows of a sample, and groups of eight
 * share a Philox block, so a block's threads walk through one sample at a time.  Dropped elements
 * become 0, whatever they were. */
static __global__ void __launch_bounds__(CUDA_WALK_THREADS) dropout(const struct cuda_args args)
{
    const struct cuda_floats from = args.operand[DROPOUT_X];
    for (int64_t sample = blockIdx.y; sample < args.parts; sample += gridDim.y) {
        const struct dropout_mask mask =
            dropout_mask_of(CUDA_POINTER(const union scalar_word, DROPOUT_SCALARS),
                            (uint32_t)args.attrs.site, (uint32_t)sample, args.threshold);
        cuda_walk_each(args.walk, [&](const struct cuda_span &own) {
            const struct cuda_span span = {sample * args.walk.elements + own.first, own.count,
                                           own.whole};
            const struct cuda_group group = cuda_fetch(from, span);
            const uint32_t kept = dropout_kept(&mask, (uint32_t)(own.first / CUDA_GROUP));
            float x[CUDA_GROUP];
            cuda_unpack(group, from.dtype, x);
            UNROLLED(k, CUDA_GROUP)
                x[k] = (kept >> k & 1u) != 0 ? x[k] * args.kept_scale : 0.0f;
            cuda_write(args.operand[DROPOUT_Y], span, x);
        });
    }
}

CUDA_WALK_LAUNCHER(fill, fill)
CUDA_WALK_LAUNCHER(copy, copy)
CUDA_WALK_LAUNCHER(residual, residual)
CUDA_WALK_LAUNCHER(blend, blend)
CUDA_WALK_LAUNCHER(gradient_round, gradient_round)
CUDA_WALK_LAUNCHER(sum_parts, sum_parts)
CUDA_LAUNCHER(dropout, dropout,
              dim3((unsigned)args.walk.blocks,
                   (unsigned)(args.parts < CUDA_GRID_YZ_MAX ? args.parts : CUDA_GRID_YZ_MAX)),
              dim3(CUDA_WALK_THREADS))
