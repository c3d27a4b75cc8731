/* adamw_lean: AdamW of a bf16 parameter without a master, with m and v in fp32, bf16 or 8-bit
 * codes.
 *
 * One group per block of STATE_BLOCK elements, GT_EACH of them per work-item.  The arithmetic
 * matches op.h bit for bit: nothing is contracted, gt_divide and gt_sqrt are correctly rounded, and
 * the group generates the random bits of a block once.  The block's maximum is computed on the bits
 * of non-negative floats, which have the same order as the values.
 */
#define GT_EACH (STATE_BLOCK / GT_GROUP)

/* Loads a moment before this step; `e` is the block's exponent if the moment is a code. */
static float gt_moment_load(bool is_v, __global const uchar *memory, ulong at, int dtype, int e)
{
    return dtype == DTYPE_U8 ? state_decode(is_v, memory[at], state_scale(e))
                             : gt_load(memory, at, dtype);
}

GT_KERNEL(GT_GROUP)
gt_adamw_lean(GT_TENSOR(grad), GT_SCALARS, GT_ARRAY(const float, corrections),
              GT_ARRAY(ushort, param), GT_TENSOR(first), GT_TENSOR(second), GT_ARRAY(char, scales),
              GT_ADAMW_VALUES, long blocks, long index_base, long count)
{
    GT_ROUNDED_BLOCK(3);
    __local uint scratch[GT_GROUP];
    const long block = gt_group_index(0);
    const bool codes = first_dtype == DTYPE_U8, skips = GT_SCALAR(FOUND_INF).i != 0;
    const long end = skips ? 0 : count;
    gt_rounding_fill(words, &rounding, index, ROUNDING_PARAM, 3);
    const struct adamw_step step = GT_ADAMW_STEP;
    const int old_m = codes ? GT_AT(scales, block) : 0,
              old_s = codes ? GT_AT(scales, blocks + block) : 0;
    float ms[GT_EACH], vs[GT_EACH];
    uint largest_m = 0, largest_s = 0;
    for (int k = 0; k < GT_EACH; k++) {
        const uint e = (uint)get_local_id(0) + (uint)k * GT_GROUP;
        const long i = begin + e;
        ms[k] = vs[k] = 0.0f;
        if (i >= end)
            continue;
        float param_new = bf16_to_f32(GT_AT(param, i));
        ms[k] = gt_moment_load(false, first, first_at + (ulong)i, first_dtype, old_m);
        vs[k] = gt_moment_load(true, second, second_at + (ulong)i, second_dtype, old_s);
        adamw_update(&step, GT_LOAD(grad, i), &param_new, &ms[k], &vs[k]);
        GT_AT(param, i) = bf16_stochastic(param_new, gt_rounding_bits(words, index, e));
        largest_m = max(largest_m, as_uint(state_magnitude(false, ms[k])));
        largest_s = max(largest_s, codes ? as_uint(state_magnitude(true, vs[k])) : 0u);
    }
    const int new_m = state_exponent(false, as_float(gt_group_max_bits(largest_m, scratch)));
    const int new_s = state_exponent(true, as_float(gt_group_max_bits(largest_s, scratch)));
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
        const uint random_m = gt_rounding_bits(words + ROUNDING_M * GT_ROUNDING_WORDS, index, e);
        const uint random_v = gt_rounding_bits(words + ROUNDING_V * GT_ROUNDING_WORDS, index, e);
        if (codes) {
            const float m = state_magnitude(false, ms[k]), v = state_magnitude(true, vs[k]);
            first[first_at + (ulong)i] =
                (uchar)state_encode(false, ms[k], m, state_scale(-new_m), random_m);
            second[second_at + (ulong)i] =
                (uchar)state_encode(true, vs[k], v, state_scale(-new_s), random_v);
        } else {
            gt_store_rounded(first, first_at + (ulong)i, first_dtype, ms[k], random_m);
            gt_store_rounded(second, second_at + (ulong)i, second_dtype, vs[k], random_v);
        }
    }
}
