/* adamw_lean: AdamW of a bf16 parameter without a master, with m and v in fp32, bf16 or 8-bit codes; one pass.
 *
 * A warp takes a block of STATE_BLOCK = 256 elements and a lane eight of them, so that the two exponents of a block of
 * codes are maxima over a warp, and a lane's elements share one Philox block for each stream.  Exact: every operation
 * is rounded by itself, in op.h's order, so the bits are those of every other backend.
 */
#include "backends/cuda/cuda_adamw.h"
#include "backends/cuda/cuda_philox.h"

/* param is bf16.  The moments are fp32, bf16 or 8-bit codes.  Codes have `scales`: int8 exponents, [blocks] of m, then
 * [blocks] of v. */
struct adamw_lean_args {
    struct cuda_floats grad, param, first, second;
    uint8_t *scales;
    int64_t blocks; /* of STATE_BLOCK elements */
    int64_t index_base;
    struct cuda_adamw_step step;
    struct cuda_walk walk;
};

static_assert(STATE_BLOCK == WARP_LANES * CUDA_GROUP, "a warp takes a block");

/* 2^e, for -127 < e < 128. */
DEVICE float power_of_two(int e)
{
    return __uint_as_float((uint32_t)(127 + e) << 23);
}

/* Returns the exponent of a block whose largest magnitude is `largest`. */
DEVICE int exponent_of(float largest, uint32_t add)
{
    const int e = (int)((__float_as_uint(largest) + add) >> 23) - 127;
    return e < STATE_EXPONENT_MIN ? STATE_EXPONENT_MIN : e > STATE_EXPONENT_MAX ? STATE_EXPONENT_MAX : e;
}

DEVICE float decode(uint32_t code, int fraction)
{
    const float subnormal = __fmul_rn((float)(int)code, power_of_two(-14 - fraction));
    const float normal = __uint_as_float((code + (112u << fraction)) << (23 - fraction));
    return code < 1u << fraction ? subnormal : normal;
}

DEVICE uint32_t encode(float x, int fraction, uint32_t random)
{
    const bool small = x < 0x1p-14f;
    const uint32_t units = (uint32_t)(int)__fmul_rn(small ? x : 0.0f, power_of_two(30 + fraction));
    const uint32_t subnormal = (units + random) >> 16;
    const uint32_t normal = ((__float_as_uint(x) + (random << (7 - fraction))) >> (23 - fraction)) - (112u << fraction);
    return small ? subnormal : normal;
}

/* Returns the largest value of all lanes.  It skips NaNs, as op.h does.  (There are none unless the gradient is not
 * finite, and then nothing is updated.) */
DEVICE float largest_of_warp(float value)
{
#pragma unroll
    for (int distance = WARP_LANES / 2; distance > 0; distance /= 2)
        value = fmaxf(value, __shfl_xor_sync(ALL_LANES, value, distance));
    return value;
}

/* Fetches the eight codes of a span, one in each byte; element by element if the span is not whole. */
DEVICE uint64_t codes_fetch(const struct cuda_floats &from, const struct cuda_span &span)
{
    const uint8_t *memory = (const uint8_t *)from.memory + span.first;
    uint64_t codes = 0;
    if (span.whole)
        return *(const uint64_t *)memory;
#pragma unroll
    for (int k = 0; k < CUDA_GROUP; k++)
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
#pragma unroll
    for (int k = 0; k < CUDA_GROUP; k++) {
        if (k < span.count)
            memory[k] = (uint8_t)(codes >> 8 * k);
    }
}

DEVICE void first_decode(uint64_t codes, float scale, float (&first)[CUDA_GROUP])
{
#pragma unroll
    for (int k = 0; k < CUDA_GROUP; k++) {
        const uint32_t code = (uint32_t)(codes >> 8 * k) & 255u;
        const float m = __fmul_rn(decode(code & 127u, STATE_M_FRACTION), scale);
        first[k] = (code & 128u) != 0 ? -m : m;
    }
}

DEVICE void second_decode(uint64_t codes, float scale, float (&second)[CUDA_GROUP])
{
#pragma unroll
    for (int k = 0; k < CUDA_GROUP; k++) {
        const float s = __fmul_rn(decode((uint32_t)(codes >> 8 * k) & 255u, STATE_V_FRACTION), scale);
        second[k] = __fmul_rn(s, s);
    }
}

/* Encodes m, with the block's exponent.  The whole warp takes part; elements beyond the count do not affect the
 * exponent. */
DEVICE uint64_t first_encode(const float (&first)[CUDA_GROUP], int count, const struct philox_block &random,
                             int *exponent)
{
    float largest = 0.0f;
#pragma unroll
    for (int k = 0; k < CUDA_GROUP; k++)
        largest = k < count ? fmaxf(largest, fabsf(first[k])) : largest;
    *exponent = exponent_of(largest_of_warp(largest), STATE_M_ADD);
    const float scale = power_of_two(-*exponent);
    uint64_t codes = 0;
#pragma unroll
    for (int k = 0; k < CUDA_GROUP; k++) {
        const uint32_t code = encode(__fmul_rn(fabsf(first[k]), scale), STATE_M_FRACTION, cuda_philox_bits(random, k));
        const uint32_t sign = __float_as_uint(first[k]) >> 24 & 128u;
        codes |= (uint64_t)((code < STATE_M_CODE_MAX ? code : (uint32_t)STATE_M_CODE_MAX) | sign) << 8 * k;
    }
    return codes;
}

DEVICE uint64_t second_encode(const float (&second)[CUDA_GROUP], int count, const struct philox_block &random,
                              int *exponent)
{
    float root[CUDA_GROUP], largest = 0.0f;
#pragma unroll
    for (int k = 0; k < CUDA_GROUP; k++) {
        root[k] = k < count ? __fsqrt_rn(second[k]) : 0.0f;
        largest = fmaxf(largest, root[k]);
    }
    *exponent = exponent_of(largest_of_warp(largest), STATE_V_ADD);
    const float scale = power_of_two(-*exponent);
    uint64_t codes = 0;
#pragma unroll
    for (int k = 0; k < CUDA_GROUP; k++) {
        const uint32_t code = encode(__fmul_rn(root[k], scale), STATE_V_FRACTION, cuda_philox_bits(random, k));
        const uint32_t least = root[k] > 0.0f ? 1u : 0u;
        const uint32_t capped = code < STATE_V_CODE_MAX ? code : (uint32_t)STATE_V_CODE_MAX;
        codes |= (uint64_t)(capped > least ? capped : least) << 8 * k;
    }
    return codes;
}

/* Stores both moments of block `block` as codes, with their exponents. */
DEVICE void codes_store(const struct adamw_lean_args &args, const struct cuda_rounding &rounding, int64_t block,
                        const struct cuda_span &span, const float (&first)[CUDA_GROUP],
                        const float (&second)[CUDA_GROUP])
{
    int first_exponent, second_exponent;
    const int64_t at = span.first;
    const uint64_t m = first_encode(first, span.count, cuda_rounding_bits(rounding, at, ROUNDING_M), &first_exponent);
    const uint64_t v =
        second_encode(second, span.count, cuda_rounding_bits(rounding, at, ROUNDING_V), &second_exponent);
    codes_put(args.first, span, m);
    codes_put(args.second, span, v);
    __syncwarp(); /* every lane has read the old exponents */
    if (threadIdx.x % WARP_LANES == 0) {
        args.scales[block] = (uint8_t)(int8_t)first_exponent;
        args.scales[args.blocks + block] = (uint8_t)(int8_t)second_exponent;
    }
}

/* Loads the moments of the span as fp32, with zeros beyond the count. */
DEVICE void moments_load(const struct adamw_lean_args &args, int64_t block, const struct cuda_span &span,
                         float (&first)[CUDA_GROUP], float (&second)[CUDA_GROUP])
{
    if (args.first.dtype == DTYPE_U8) {
        const uint64_t m = codes_fetch(args.first, span), v = codes_fetch(args.second, span);
        first_decode(m, power_of_two((int8_t)args.scales[block]), first);
        second_decode(v, power_of_two((int8_t)args.scales[args.blocks + block]), second);
        return;
    }
    const struct cuda_group from_first = cuda_fetch(args.first, span), from_second = cuda_fetch(args.second, span);
    cuda_unpack(from_first, args.first.dtype, first);
    cuda_unpack(from_second, args.second.dtype, second);
}

DEVICE void moments_store(const struct adamw_lean_args &args, const struct cuda_rounding &rounding, int64_t block,
                          const struct cuda_span &span, const float (&first)[CUDA_GROUP],
                          const float (&second)[CUDA_GROUP])
{
    if (args.first.dtype == DTYPE_U8) {
        codes_store(args, rounding, block, span, first, second);
    } else {
        cuda_write_rounded(args.first, span, first, rounding, ROUNDING_M);
        cuda_write_rounded(args.second, span, second, rounding, ROUNDING_V);
    }
}

/* Three blocks on a multiprocessor, by registers: the compiler would aim at two, or at four and spill. */
static __global__ void __launch_bounds__(CUDA_WALK_THREADS, 3)
    adamw_lean(struct cuda_tensors<struct adamw_lean_args> tensors)
{
    unsigned block;
    const struct adamw_lean_args &args = cuda_tensor_find(tensors, &block);
    const struct cuda_adamw_factors factors = cuda_adamw_factors_make(args.step);
    if (factors.skip)
        return;
    const struct cuda_rounding rounding = cuda_rounding_make(args.step.scalars, args.index_base);
    const int64_t end = args.walk.elements;
    /* A warp's first element decides, so that its lanes leave the loop together. */
    for (int64_t at = cuda_walk_first(block); at - at % STATE_BLOCK < end;
         at += cuda_walk_stride((unsigned)args.walk.blocks)) {
        const struct cuda_span span = cuda_span_make(at, end, args.walk.aligned);
        float grad[CUDA_GROUP], param[CUDA_GROUP], first[CUDA_GROUP], second[CUDA_GROUP];
        const struct cuda_group from_grad = cuda_fetch(args.grad, span), from_param = cuda_fetch(args.param, span);
        moments_load(args, at / STATE_BLOCK, span, first, second);
        cuda_unpack(from_grad, args.grad.dtype, grad);
        cuda_unpack(from_param, DTYPE_BF16, param);
#pragma unroll
        for (int k = 0; k < CUDA_GROUP; k++)
            cuda_adamw_update(factors, grad[k], &param[k], &first[k], &second[k]);
        cuda_write_rounded(args.param, span, param, rounding, ROUNDING_PARAM);
        moments_store(args, rounding, at / STATE_BLOCK, span, first, second);
    }
}

CUDA_TENSORS_LAUNCHER(adamw_lean, struct adamw_lean_args, CUDA_WALK_THREADS, args->operand[ADAMW_LEAN_GRAD],
                      args->operand[ADAMW_LEAN_PARAM], args->operand[ADAMW_LEAN_M], args->operand[ADAMW_LEAN_V],
                      CUDA_POINTER(uint8_t, ADAMW_LEAN_SCALES), (args->walk.elements + STATE_BLOCK - 1) / STATE_BLOCK,
                      args->attrs.index_base, cuda_adamw_step_of(args), args->walk)
