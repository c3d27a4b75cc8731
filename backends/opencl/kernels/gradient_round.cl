/* gradient_round: y = x, or y + x, rounded stochastically to bf16.
 *
 * One group per block of GT_STATE_BLOCK elements, for which it generates the random bits once.
 */
GT_KERNEL(GT_GROUP)
gt_gradient_round(GT_ARRAY(const float, x), GT_ARRAY(const uint, scalars), GT_ARRAY(ushort, y), int accumulate,
                  ulong index_base, long count)
{
    __local uint words[GT_ROUNDING_WORDS];
    const long begin = gt_group_index(0) * GT_STATE_BLOCK;
    const ulong index = index_base + (ulong)begin;
    const uint stream = GT_ROUNDING_GRADIENT + 4u * GT_AT(scalars, GT_MICRO_STEP);
    gt_rounding_fill(words, GT_AT(scalars, GT_SEED_LO), GT_AT(scalars, GT_SEED_HI), GT_AT(scalars, GT_STEP), index,
                     stream, 1);
    for (uint e = (uint)get_local_id(0); e < GT_STATE_BLOCK && begin + e < count; e += GT_GROUP) {
        const long i = begin + e;
        const float old = as_float((uint)GT_AT(y, i) << 16), value = GT_AT(x, i);
        GT_AT(y, i) = gt_bf16_stochastic(accumulate ? old + value : value, gt_rounding_bits(words, index, e));
    }
}
