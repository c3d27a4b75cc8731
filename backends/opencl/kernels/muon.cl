/* gradient_round, muon_momentum, muon_normalize, muon_step: the arithmetic matches op.h bit for
 * bit.
 *
 * Kernels that round stochastically run one group per block of STATE_BLOCK elements, which
 * generates the block's random bits once.
 */

/* y = x, or y + x, rounded stochastically to bf16. */
GT_KERNEL(GT_GROUP)
gt_gradient_round(GT_ARRAY(const float, x), GT_SCALARS, GT_ARRAY(ushort, y), int accumulate,
                  long index_base, long count)
{
    GT_ROUNDED_BLOCK(1);
    const uint stream = ROUNDING_GRADIENT + 4u * GT_SCALAR(MICRO_STEP).u;
    gt_rounding_fill(words, &rounding, index, stream, 1);
    for (uint e = (uint)get_local_id(0); e < STATE_BLOCK && begin + e < count; e += GT_GROUP) {
        const long i = begin + e;
        const float old = as_float((uint)GT_AT(y, i) << 16), value = GT_AT(x, i);
        GT_AT(y, i) =
            bf16_stochastic(accumulate ? old + value : value, gt_rounding_bits(words, index, e));
    }
}

GT_KERNEL(GT_GROUP)
gt_muon_momentum(GT_TENSOR(grad), GT_SCALARS, GT_TENSOR(m), GT_ARRAY(float, u), long index_base,
                 long count)
{
    GT_ROUNDED_BLOCK(1);
    const float clip = GT_SCALAR(CLIP).f;
    const float mu = GT_SCALAR(MUON_MOMENTUM).f, rest = 1.0f - mu;
    const bool skips = GT_SCALAR(FOUND_INF).i != 0;
    gt_rounding_fill(words, &rounding, index, ROUNDING_M, 1);
    for (uint e = (uint)get_local_id(0); e < STATE_BLOCK && begin + e < count; e += GT_GROUP) {
        const long i = begin + e;
        const float g = GT_LOAD(grad, i) * clip;
        const float next = mu * GT_LOAD(m, i) + rest * g;
        GT_AT(u, i) = skips ? 0.0f : mu * next + rest * g;
        if (skips)
            continue;
        gt_store_rounded(m, m_at + (ulong)i, m_dtype, next, gt_rounding_bits(words, index, e));
    }
}

__kernel void gt_muon_normalize(GT_TENSOR(x), GT_ARRAY(const float, sum), GT_TENSOR(y), long count)
{
    GT_ITEM((long)get_global_id(0), count);
    const float norm = EXACT_ROOT(GT_AT(sum, 0)) + MUON_NORM_EPSILON;
    GT_LOAD_EACH(v, x, begin);
    GT_FOR_EACH(e)
        v[e] = EXACT_DIV(v[e], norm);
    GT_STORE_EACH(y, begin, v);
}

GT_KERNEL(GT_GROUP)
gt_muon_step(GT_TENSOR(o), GT_SCALARS, GT_TENSOR(param), GT_TENSOR(master), float alpha,
             float scale, float decay, long index_base, long count)
{
    GT_ROUNDED_BLOCK(1);
    const float rate = GT_SCALAR(LEARNING_RATE).f * alpha;
    const bool mastered = master_dtype >= 0;
    const long end = GT_SCALAR(FOUND_INF).i != 0 ? 0 : count;
    gt_rounding_fill(words, &rounding, index, ROUNDING_PARAM, 1);
    for (uint e = (uint)get_local_id(0); e < STATE_BLOCK && begin + e < end; e += GT_GROUP) {
        const long i = begin + e;
        const float p = mastered ? GT_LOAD(master, i) : GT_LOAD(param, i);
        const float next = p - rate * (scale * GT_LOAD(o, i) + decay * p);
        if (mastered) {
            GT_STORE(master, i, next);
            GT_STORE(param, i, next);
            continue;
        }
        gt_store_rounded(param, param_at + (ulong)i, param_dtype, next,
                         gt_rounding_bits(words, index, e));
    }
}
