/* fill, copy, residual, blend and dropout, from any float dtype to any; results may replace an input.
 *
 * One work-item per element, but in dropout per eight that share a Philox block.
 */
__kernel void gt_fill(GT_TENSOR(y), float value, long count)
{
    const long i = (long)get_global_id(0);
    if (i < count)
        GT_STORE(y, i, value);
}

/* y = x, or y += x.  Between equal dtypes, y = x copies the bits. */
__kernel void gt_copy(GT_TENSOR(x), GT_TENSOR(y), int accumulate, long count)
{
    const long i = (long)get_global_id(0);
    if (i >= count)
        return;
    if (accumulate)
        GT_STORE(y, i, GT_LOAD(y, i) + GT_LOAD(x, i));
    else if (x_dtype != y_dtype)
        GT_STORE(y, i, GT_LOAD(x, i));
    else if (x_dtype == GT_F32)
        ((__global uint *)y)[y_at + (ulong)i] = ((__global const uint *)x)[x_at + (ulong)i];
    else
        ((__global ushort *)y)[y_at + (ulong)i] = ((__global const ushort *)x)[x_at + (ulong)i];
}

__kernel void gt_residual(GT_TENSOR(x), GT_TENSOR(y), GT_TENSOR(r), long count)
{
    const long i = (long)get_global_id(0);
    if (i < count)
        GT_STORE(r, i, GT_LOAD(x, i) + GT_LOAD(y, i));
}

/* Each product and the sum are rounded once. */
__kernel void gt_blend(GT_TENSOR(x), GT_TENSOR(z), GT_TENSOR(y), float alpha, float beta, long count)
{
    const long i = (long)get_global_id(0);
    if (i < count)
        GT_STORE(y, i, alpha * GT_LOAD(x, i) + beta * GT_LOAD(z, i));
}

/* y = x times a mask that is a pure function of seed, step, sample, site and element (ops/op.h); samples are rows.  The
 * op is also its own backward. */
__kernel void gt_dropout(GT_TENSOR(x), GT_ARRAY(const uint, scalars), GT_TENSOR(y), int site, uint threshold,
                         float scale, long sample_elements)
{
    long sample;
    const long group = gt_column((sample_elements + 7) / 8, &sample), first = 8 * group;
    if (first >= sample_elements)
        return;
    const uint4 counter =
        (uint4)((uint)group, (uint)site, GT_AT(scalars, GT_SAMPLE_BASE) + (uint)sample, GT_AT(scalars, GT_STEP));
    const uint kept = gt_dropout_kept(GT_AT(scalars, GT_SEED_LO), GT_AT(scalars, GT_SEED_HI), counter, threshold);
    const int width = (int)min(sample_elements - first, 8L);
    const long at = sample * sample_elements + first;
    for (int e = 0; e < width; e++)
        GT_STORE(y, at + e, (kept >> e & 1u) != 0 ? GT_LOAD(x, at + e) * scale : 0.0f);
}
