/* sum_of_squares and clip_factor: the gradient's norm and the scalars derived from it; loss_sum: a sum.
 *
 * Groups sum squares over equal parts, and one group adds the parts' sums.  An infinity or a NaN in the gradient, or a
 * norm beyond fp32, makes the norm non-finite, which skips the update.
 */
#define GT_PARTIAL_LARGE 0x1p100f /* sums of such partials may overflow although their root does not */

GT_KERNEL(GT_GROUP)
gt_sum_of_squares(GT_TENSOR(x), GT_ARRAY(float, partial), long part_elements, long count)
{
    __local float scratch[GT_GROUP];
    const long part = gt_group_index(0), end = min((part + 1) * part_elements, count);
    float sum = 0.0f;
    for (long i = part * part_elements + (long)get_local_id(0); i < end; i += GT_GROUP) {
        const float value = GT_LOAD(x, i);
        sum = gt_fma(value, value, sum);
    }
    const float total = gt_group_sum(sum, scratch);
    if (get_local_id(0) == 0)
        GT_AT(partial, part) = total;
}

/* out[at] = the sum of the values, or += the sum; one group. */
GT_KERNEL(GT_GROUP)
gt_sum(GT_ARRAY(const float, values), GT_ARRAY(float, out), long at, int accumulate, long count)
{
    __local float scratch[GT_GROUP];
    float sum = 0.0f;
    for (long i = (long)get_local_id(0); i < count; i += GT_GROUP)
        sum += GT_AT(values, i);
    const float total = gt_group_sum(sum, scratch);
    if (get_local_id(0) == 0)
        GT_AT(out, at) = accumulate ? GT_AT(out, at) + total : total;
}

GT_KERNEL(GT_GROUP)
gt_clip_factor(GT_ARRAY(const float, partials), GT_ARRAY(uint, scalars), float clip_max, long count)
{
    __local float scratch[GT_GROUP];
    float largest = 0.0f, sum = 0.0f;
    for (long i = (long)get_local_id(0); i < count; i += GT_GROUP)
        largest = fmax(largest, GT_AT(partials, i));
    const bool large = gt_group_max(largest, scratch) > GT_PARTIAL_LARGE;
    const float scale = large ? 0x1p-64f : 1.0f;
    for (long i = (long)get_local_id(0); i < count; i += GT_GROUP)
        sum += GT_AT(partials, i) * scale;
    const float total = gt_group_sum(sum, scratch);
    if (get_local_id(0) != 0)
        return;
    const float unscale = GT_SCALAR_FLOAT(scalars, GT_UNSCALE);
    const float norm = sqrt(total) * (large ? 0x1p32f : 1.0f) * unscale, ratio = clip_max / (norm + 1e-6f);
    const bool found_inf = !isfinite(norm);
    GT_AT(scalars, GT_GRAD_NORM) = as_uint(norm);
    GT_AT(scalars, GT_CLIP) = as_uint(clip_max > 0.0f && ratio < 1.0f ? unscale * ratio : unscale);
    GT_AT(scalars, GT_FOUND_INF) = found_inf ? 1u : 0u;
    if (!found_inf)
        GT_AT(scalars, GT_ADAM_STEP) += 1u;
}
