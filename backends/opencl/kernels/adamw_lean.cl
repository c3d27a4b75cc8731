/* adamw_lean: AdamW of a bf16 parameter without a master, with m and v in fp32, bf16 or 8-bit codes.
 *
 * One group per block of GT_STATE_BLOCK elements, GT_EACH of them per work-item.  The arithmetic matches op.h bit for
 * bit: nothing is contracted, gt_divide and gt_sqrt are correctly rounded, and the group generates the random bits of a
 * block once.  The block's maximum is computed on the bits of non-negative floats, which have the same order as the
 * values.
 */
#define GT_EACH (GT_STATE_BLOCK / GT_GROUP)
#define GT_M_FRACTION 3
#define GT_V_FRACTION 4
#define GT_M_ADD 0x100000u
#define GT_V_ADD 0x080000u
#define GT_EXPONENT_MIN (-100)
#define GT_EXPONENT_MAX 126

static float gt_power_of_two(int e)
{
    return as_float((uint)(127 + e) << 23);
}

static float gt_decode(uint code, uint fraction)
{
    if (code < 1u << fraction)
        return (float)code * gt_power_of_two(-14 - (int)fraction);
    return as_float((code + (112u << fraction)) << (23 - fraction));
}

static uint gt_encode(float x, uint fraction, uint random)
{
    if (x < 0x1p-14f)
        return ((uint)(x * gt_power_of_two(30 + (int)fraction)) + random) >> 16;
    return ((as_uint(x) + (random << (7 - fraction))) >> (23 - fraction)) - (112u << fraction);
}

/* Returns the block's exponent from the bits of each work-item's largest value; scratch[GT_GROUP]. */
GT_INLINE int gt_block_exponent(uint largest, uint add, __local uint *scratch)
{
    return clamp((int)((gt_group_max_bits(largest, scratch) + add) >> 23) - 127, GT_EXPONENT_MIN, GT_EXPONENT_MAX);
}

/* Loads a moment before this step; `e` is the block's exponent if the moment is a code. */
static float gt_first_load(__global const uchar *memory, ulong at, int dtype, int e)
{
    if (dtype != GT_U8)
        return gt_load(memory, at, dtype);
    const uint code = memory[at];
    const float m = gt_decode(code & 127u, GT_M_FRACTION) * gt_power_of_two(e);
    return (code & 128u) != 0 ? -m : m;
}

static float gt_second_load(__global const uchar *memory, ulong at, int dtype, int e)
{
    if (dtype != GT_U8)
        return gt_load(memory, at, dtype);
    const float s = gt_decode(memory[at], GT_V_FRACTION) * gt_power_of_two(e);
    return s * s;
}

static uchar gt_first_code(float m, int e, uint random)
{
    const uint code = gt_encode(fabs(m) * gt_power_of_two(-e), GT_M_FRACTION, random);
    return (uchar)(min(code, 127u) | (as_uint(m) >> 24 & 128u));
}

static uchar gt_second_code(float s, int e, uint random)
{
    const uint code = gt_encode(s * gt_power_of_two(-e), GT_V_FRACTION, random);
    return (uchar)(code == 0 && s > 0.0f ? 1u : min(code, 255u));
}

GT_KERNEL(GT_GROUP)
gt_adamw_lean(GT_TENSOR(grad), GT_ARRAY(const uint, scalars), GT_ARRAY(const float, corrections),
              GT_ARRAY(ushort, param), GT_TENSOR(first), GT_TENSOR(second), GT_ARRAY(char, scales), float beta1,
              float rest1, float beta2, float rest2, float epsilon, float weight_decay, float alpha,
              long correction_rows, long blocks, ulong index_base, long count)
{
    __local uint words[3 * GT_ROUNDING_WORDS], scratch[GT_GROUP];
    const long block = gt_group_index(0), begin = block * GT_STATE_BLOCK;
    const ulong index = index_base + (ulong)begin;
    const bool codes = first_dtype == GT_U8, skips = GT_AT(scalars, GT_FOUND_INF) != 0;
    const long end = skips ? 0 : count;
    gt_rounding_fill(words, GT_AT(scalars, GT_SEED_LO), GT_AT(scalars, GT_SEED_HI), GT_AT(scalars, GT_STEP), index,
                     GT_ROUNDING_PARAM, 3);
    const long row = clamp((long)(int)GT_AT(scalars, GT_ADAM_STEP), 1L, correction_rows) - 1;
    const float correction1 = GT_AT(corrections, 2 * row), correction2 = GT_AT(corrections, 2 * row + 1);
    const float clip = GT_SCALAR_FLOAT(scalars, GT_CLIP), rate = GT_SCALAR_FLOAT(scalars, GT_LEARNING_RATE) * alpha;
    const int old_m = codes ? GT_AT(scales, block) : 0, old_s = codes ? GT_AT(scales, blocks + block) : 0;
    float ms[GT_EACH], vs[GT_EACH];
    uint largest_m = 0, largest_s = 0;
    for (int k = 0; k < GT_EACH; k++) {
        const uint e = (uint)get_local_id(0) + (uint)k * GT_GROUP;
        const long i = begin + e;
        ms[k] = vs[k] = 0.0f;
        if (i >= end)
            continue;
        const float g = GT_LOAD(grad, i) * clip;
        const float m = beta1 * gt_first_load(first, first_at + (ulong)i, first_dtype, old_m) + rest1 * g;
        const float v = beta2 * gt_second_load(second, second_at + (ulong)i, second_dtype, old_s) + rest2 * (g * g);
        const float p = as_float((uint)GT_AT(param, i) << 16);
        const float move = gt_divide(gt_divide(m, correction1), gt_sqrt(gt_divide(v, correction2)) + epsilon);
        const float updated = p - rate * (move + weight_decay * p);
        GT_AT(param, i) = gt_bf16_stochastic(updated, gt_rounding_bits(words, index, e));
        ms[k] = m;
        vs[k] = codes ? gt_sqrt(v) : v;
        largest_m = max(largest_m, as_uint(fabs(m)));
        largest_s = max(largest_s, as_uint(vs[k]));
    }
    const int new_m = gt_block_exponent(largest_m, GT_M_ADD, scratch);
    const int new_s = gt_block_exponent(largest_s, GT_V_ADD, scratch);
    barrier(CLK_GLOBAL_MEM_FENCE); /* until all work-items have read the old exponents */
    if (get_local_id(0) == 0 && codes && !skips) {
        GT_AT(scales, block) = (char)new_m;
        GT_AT(scales, blocks + block) = (char)new_s;
    }
    for (int k = 0; k < GT_EACH; k++) {
        const uint e = (uint)get_local_id(0) + (uint)k * GT_GROUP;
        const long i = begin + e;
        if (i >= end)
            continue;
        const uint random_m = gt_rounding_bits(words + GT_ROUNDING_M * GT_ROUNDING_WORDS, index, e);
        const uint random_v = gt_rounding_bits(words + GT_ROUNDING_V * GT_ROUNDING_WORDS, index, e);
        if (codes) {
            first[first_at + (ulong)i] = gt_first_code(ms[k], new_m, random_m);
            second[second_at + (ulong)i] = gt_second_code(vs[k], new_s, random_v);
        } else {
            gt_store_rounded(first, first_at + (ulong)i, first_dtype, ms[k], random_m);
            gt_store_rounded(second, second_at + (ulong)i, second_dtype, vs[k], random_v);
        }
    }
}
