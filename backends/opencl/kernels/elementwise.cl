/* fill, copy, residual, blend, sum_parts and dropout, from any float dtype to any; results may
 * replace an input.  Eight elements of dropout share a Philox block. */
__kernel void gt_fill(GT_TENSOR(y), float value, long count)
{
    GT_ITEM((long)get_global_id(0), count);
    float v[GT_EACH];
    GT_FOR_EACH(e)
        v[e] = value;
    GT_STORE_EACH(y, begin, v);
}

/* y = x, or y += x.  Between equal dtypes, y = x is a copy of the buffer (opencl_ops.c). */
__kernel void gt_copy(GT_TENSOR(x), GT_TENSOR(y), int accumulate, long count)
{
    GT_ITEM((long)get_global_id(0), count);
    GT_LOAD_EACH(v, x, begin);
    if (accumulate) {
        GT_LOAD_EACH(old, y, begin);
        GT_FOR_EACH(e)
            v[e] = old[e] + v[e];
    }
    GT_STORE_EACH(y, begin, v);
}

__kernel void gt_residual(GT_TENSOR(x), GT_TENSOR(y), GT_TENSOR(r), long count)
{
    GT_ITEM((long)get_global_id(0), count);
    GT_LOAD_EACH(v, x, begin);
    GT_LOAD_EACH(other, y, begin);
    GT_FOR_EACH(e)
        v[e] += other[e];
    GT_STORE_EACH(r, begin, v);
}

/* Each product and the sum are rounded once. */
__kernel void gt_blend(GT_TENSOR(x), GT_TENSOR(z), GT_TENSOR(y), float alpha, float beta,
                       long count)
{
    GT_ITEM((long)get_global_id(0), count);
    GT_LOAD_EACH(v, x, begin);
    GT_LOAD_EACH(other, z, begin);
    GT_FOR_EACH(e)
        v[e] = alpha * v[e] + beta * other[e];
    GT_STORE_EACH(y, begin, v);
}

/* Adds the parts in their order; x is part `own`. */
__kernel void gt_sum_parts(GT_TENSOR(x), GT_TENSOR(others), GT_TENSOR(y), int own, int parts,
                           int accumulate, long count)
{
    GT_ITEM((long)get_global_id(0), count);
    GT_LOAD_EACH(v, y, begin);
    GT_LOAD_EACH(mine, x, begin);
    for (int p = 0; p < parts; p++) {
        float part[GT_EACH];
        if (p != own)
            gt_load_each(part, others, others_at + (ulong)((p - (p > own)) * count + begin),
                         others_dtype, width);
        GT_FOR_EACH(e)
            part[e] = p == own ? mine[e] : part[e];
        GT_FOR_EACH(e)
            v[e] = p > 0 || accumulate ? v[e] + part[e] : part[e];
    }
    GT_STORE_EACH(y, begin, v);
}

/* y = x times a mask that is a pure function of seed, step, sample, site and element (ops/op.h);
 * samples are rows.  The op is also its own backward. */
__kernel void gt_dropout(GT_TENSOR(x), GT_SCALARS, GT_TENSOR(y), int site, uint threshold,
                         float scale, long sample_elements)
{
    long sample;
    const long group = gt_column((sample_elements + GT_EACH - 1) / GT_EACH, &sample);
    GT_ITEM(group, sample_elements);
    const struct dropout_mask mask =
        dropout_mask_of(&GT_AT(scalars, 0), (uint)site, (uint)sample, threshold);
    const uint kept = dropout_kept(&mask, (uint)group);
    const long at = sample * sample_elements + begin;
    GT_LOAD_EACH(v, x, at);
    GT_FOR_EACH(e)
        v[e] = (kept >> e & 1u) != 0 ? v[e] * scale : 0.0f;
    GT_STORE_EACH(y, at, v);
}
