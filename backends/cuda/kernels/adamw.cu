/* adamw; and adamw_lean, for a bf16 parameter without a master, with m and v in fp32, bf16 or 8-bit
 * codes.
 *
 * One pass in groups of eight, bound by memory; each operand has its own dtype.  Exact: every
 * operation is rounded to fp32 by itself, in op.h's order, and each result is rounded once.  So
 * adamw_lean has the bits of every other backend.
 */
#include "backends/cuda/cuda_floats.h"

static_assert(ADAMW_SCALARS == (int)ADAMW_LEAN_SCALARS &&
                  ADAMW_CORRECTIONS == (int)ADAMW_LEAN_CORRECTIONS,
              "STEP reads both ops' operands");

struct adamw_args {
    struct cuda_floats grad, param, first, second;
    struct cuda_floats master; /* adamw; memory is NULL when it is absent */
    uint8_t *scales; /* adamw_lean, of codes: int8 exponents, [blocks] of m, then [blocks] of v */
    const union scalar_word *scalars;
    const float *corrections; /* [rows, 2] */
    int64_t rows;
    float alpha, beta1, beta2, epsilon, weight_decay;
    int64_t index_base;
    struct cuda_walk walk;
};

DEVICE struct adamw_step step_of(const struct adamw_args &args)
{
    return adamw_step_of(args.scalars, args.corrections, args.rows, args.alpha, args.beta1,
                         args.beta2, args.epsilon, args.weight_decay);
}

/* clip_factor found an infinity: nothing is updated. */
DEVICE bool is_skipped(const struct adamw_args &args)
{
    return args.scalars[SCALAR_FOUND_INF].i != 0;
}

static __global__ void __launch_bounds__(CUDA_WALK_THREADS)
    adamw(struct cuda_tensors<struct adamw_args> tensors)
{
    unsigned block;
    const struct adamw_args args = cuda_tensor_find(tensors, &block);
    const struct adamw_step step = step_of(args);
    const bool mastered = args.master.memory != NULL;
    const struct cuda_floats weights = mastered ? args.master : args.param;
    if (is_skipped(args))
        return;
    const auto update = [&](const struct cuda_span &span) {
        float grad[CUDA_GROUP], weight[CUDA_GROUP], first[CUDA_GROUP], second[CUDA_GROUP];
        cuda_read(args.grad, span, grad, weights, span, weight, args.first, span, first,
                  args.second, span, second);
        UNROLLED(k, CUDA_GROUP)
            adamw_update(&step, grad[k], &weight[k], &first[k], &second[k]);
        cuda_write(args.param, span, weight);
        if (mastered)
            cuda_write(args.master, span, weight);
        cuda_write(args.first, span, first);
        cuda_write(args.second, span, second);
    };
    cuda_walk_each(args.walk, update, block, (unsigned)args.walk.blocks);
}

/* ---- adamw_lean: a warp takes a block of STATE_BLOCK elements and a lane eight of them.  So the
 * exponent of a block of codes is a maximum over a warp, and a lane's elements share one Philox
 * block for each stream. ---- */

static_assert(STATE_BLOCK == WARP_LANES * CUDA_GROUP, "a warp takes a block");

/* Fetches the eight codes of a span, one in each byte; element by element if the span is not whole.
 */
DEVICE uint64_t codes_fetch(const struct cuda_floats &from, const struct cuda_span &span)
{
    const uint8_t *memory = (const uint8_t *)from.memory + span.first;
    uint64_t codes = 0;
    if (span.whole)
        return *(const uint64_t *)memory;
    UNROLLED(k, CUDA_GROUP)
        codes |= (uint64_t)(k < span.count ? memory[k] : 0u) << 8 * k;
    return codes;
}

DEVICE void codes_put(const struct cuda_floats &to, const struct cuda_span &span, uint64_t codes)
{
    uint8_t *memory = (uint8_t *)to.memory + span.first;
    if (span.whole) {
        *(uint64_t *)memory = codes;
        return;
    }
    UNROLLED(k, CUDA_GROUP) {
        if (k < span.count)
            memory[k] = (uint8_t)(codes >> 8 * k);
    }
}

/* Decodes m, or v of its root. */
template <bool IS_V>
DEVICE void codes_decode(uint64_t codes, uint8_t exponent, float (&value)[CUDA_GROUP])
{
    const float scale = state_scale((int8_t)exponent);
    UNROLLED(k, CUDA_GROUP)
        value[k] = state_decode(IS_V, (uint32_t)(codes >> 8 * k) & 255u, scale);
}

/* Encodes m, or the root of v, with the block's exponent.  The whole warp takes part; the exponent
 * ignores elements beyond the count and NaNs.  (A NaN occurs only when the gradient is not finite,
 * and then the update is skipped.) */
template <bool IS_V>
DEVICE uint64_t codes_encode(const float (&value)[CUDA_GROUP], int count,
                             const struct philox_block &random, int *exponent)
{
    float magnitude[CUDA_GROUP], largest = 0.0f;
    UNROLLED(k, CUDA_GROUP) {
        magnitude[k] = k < count ? state_magnitude(IS_V, value[k]) : 0.0f;
        largest = fmaxf(largest, magnitude[k]);
    }
    *exponent = state_exponent(IS_V, cuda_lanes_max<WARP_LANES>(largest));
    const float scale = state_scale(-*exponent);
    uint64_t codes = 0;
    UNROLLED(k, CUDA_GROUP)
        codes |=
            (uint64_t)state_encode(IS_V, value[k], magnitude[k], scale, philox_bits(random.word, k))
            << 8 * k;
    return codes;
}

DEVICE int64_t blocks_of(const struct adamw_args &args)
{
    return (args.walk.elements + STATE_BLOCK - 1) / STATE_BLOCK;
}

/* Stores both moments of block `block` as codes, with their exponents. */
DEVICE void codes_store(const struct adamw_args &args, const struct rounding &rounding,
                        int64_t block, const struct cuda_span &span,
                        const float (&first)[CUDA_GROUP], const float (&second)[CUDA_GROUP])
{
    int of_first, of_second;
    const int64_t at = span.first;
    const uint64_t m = codes_encode<false>(first, span.count,
                                           cuda_rounding_bits(rounding, at, ROUNDING_M), &of_first);
    const uint64_t v = codes_encode<true>(second, span.count,
                                          cuda_rounding_bits(rounding, at, ROUNDING_V), &of_second);
    codes_put(args.first, span, m);
    codes_put(args.second, span, v);
    __syncwarp(); /* every lane has read the old exponents */
    if (cuda_lane() == 0) {
        args.scales[block] = (uint8_t)(int8_t)of_first;
        args.scales[blocks_of(args) + block] = (uint8_t)(int8_t)of_second;
    }
}

/* Three blocks on a multiprocessor, by registers: the compiler would aim at two, or at four and
 * spill. */
static __global__ void __launch_bounds__(CUDA_WALK_THREADS, 3)
    adamw_lean(struct cuda_tensors<struct adamw_args> tensors)
{
    unsigned number;
    const struct adamw_args &args = cuda_tensor_find(tensors, &number);
    const struct adamw_step step = step_of(args);
    if (is_skipped(args))
        return;
    const struct rounding rounding = rounding_of(args.scalars, args.index_base);
    const bool has_codes = args.first.dtype == DTYPE_U8;
    const struct cuda_walk whole = {blocks_of(args) * STATE_BLOCK, args.walk.blocks,
                                    args.walk.aligned};
    const auto update = [&](const struct cuda_span &group) {
        const struct cuda_span span =
            cuda_span_make(group.first, args.walk.elements, args.walk.aligned);
        const int64_t block = span.first / STATE_BLOCK;
        float grad[CUDA_GROUP], param[CUDA_GROUP], first[CUDA_GROUP], second[CUDA_GROUP];
        if (has_codes) {
            const uint64_t m = codes_fetch(args.first, span), v = codes_fetch(args.second, span);
            cuda_read(args.grad, span, grad, args.param, span, param);
            codes_decode<false>(m, args.scales[block], first);
            codes_decode<true>(v, args.scales[blocks_of(args) + block], second);
        } else {
            cuda_read(args.grad, span, grad, args.param, span, param, args.first, span, first,
                      args.second, span, second);
        }
        UNROLLED(k, CUDA_GROUP)
            adamw_update(&step, grad[k], &param[k], &first[k], &second[k]);
        cuda_write_rounded(args.param, span, param, rounding, ROUNDING_PARAM);
        if (has_codes) {
            codes_store(args, rounding, block, span, first, second);
        } else {
            cuda_write_rounded(args.first, span, first, rounding, ROUNDING_M);
            cuda_write_rounded(args.second, span, second, rounding, ROUNDING_V);
        }
    };
    /* In whole blocks, so that the lanes of a warp leave the loop together. */
    cuda_walk_each(whole, update, number, (unsigned)args.walk.blocks);
}

#define STEP                                                                             \
    CUDA_POINTER(const union scalar_word, ADAMW_SCALARS),                                \
        CUDA_POINTER(const float, ADAMW_CORRECTIONS), args.rows, args.attrs.alpha,       \
        args.attrs.beta1, args.attrs.beta2, args.attrs.epsilon, args.attrs.weight_decay, \
        args.attrs.index_base, args.walk
CUDA_TENSORS_LAUNCHER(adamw, struct adamw_args, CUDA_WALK_THREADS, args.operand[ADAMW_GRAD],
                      args.operand[ADAMW_PARAM], args.operand[ADAMW_M], args.operand[ADAMW_V],
                      args.operand[ADAMW_MASTER], NULL, STEP)
CUDA_TENSORS_LAUNCHER(adamw_lean, struct adamw_args, CUDA_WALK_THREADS,
                      args.operand[ADAMW_LEAN_GRAD], args.operand[ADAMW_LEAN_PARAM],
                      args.operand[ADAMW_LEAN_M], args.operand[ADAMW_LEAN_V], {NULL, DTYPE_F32},
                      CUDA_POINTER(uint8_t, ADAMW_LEAN_SCALES), STEP)
