/* sum_of_squares and clip_factor: the gradient's norm and the scalars derived from it; loss_sum: a
 * sum; adamw.
 *
 * Groups sum squares over equal parts, and one group adds the parts' sums.  An infinity or a NaN in
 * the gradient, or a norm beyond fp32, makes the norm non-finite, which skips the update.
 */
/* Sums of such partials may overflow although their root does not. */
#define GT_PARTIAL_LARGE 0x1p100f

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
gt_clip_factor(GT_ARRAY(const float, partials), GT_ARRAY(union scalar_word, scalars),
               float clip_max, long count)
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
    const float unscale = GT_SCALAR(UNSCALE).f;
    const float norm = sqrt(total) * (large ? 0x1p32f : 1.0f) * unscale,
                ratio = clip_max / (norm + 1e-6f);
    const bool found_inf = !isfinite(norm);
    GT_SCALAR(GRAD_NORM).f = norm;
    GT_SCALAR(CLIP).f = clip_max > 0.0f && ratio < 1.0f ? unscale * ratio : unscale;
    GT_SCALAR(FOUND_INF).i = found_inf ? 1 : 0;
    if (!found_inf)
        GT_SCALAR(ADAM_STEP).i++;
}

/* One pass over gradient, parameter and both moments.  Nothing is updated if clip_factor
 * found an infinity.  Moments and parameter are rounded once, from the fp32 values of this step.
 * With a master, the update applies to the master, and the parameter is its rounding. */
__kernel void gt_adamw(GT_TENSOR(grad), GT_SCALARS, GT_ARRAY(const float, corrections),
                       GT_TENSOR(param), GT_TENSOR(first), GT_TENSOR(second), GT_TENSOR(master),
                       GT_ADAMW_VALUES, long count)
{
    GT_ITEM((long)get_global_id(0), GT_SCALAR(FOUND_INF).i != 0 ? 0 : count);
    const struct adamw_step step = GT_ADAMW_STEP;
    const bool mastered = master_dtype >= 0;
    float p[GT_EACH];
    gt_load_each(p, mastered ? master : param, (mastered ? master_at : param_at) + (ulong)begin,
                 mastered ? master_dtype : param_dtype, width);
    GT_LOAD_EACH(g, grad, begin);
    GT_LOAD_EACH(m, first, begin);
    GT_LOAD_EACH(v, second, begin);
    GT_FOR_EACH(e) {
        const float scaled = g[e] * step.clip;
        m[e] = step.beta1 * m[e] + step.rest1 * scaled;
        v[e] = step.beta2 * v[e] + step.rest2 * scaled * scaled;
        const float root = sqrt(v[e] / step.correction2) + step.epsilon;
        p[e] -= step.learning_rate * ((m[e] / step.correction1) / root + step.weight_decay * p[e]);
    }
    GT_STORE_EACH(first, begin, m);
    GT_STORE_EACH(second, begin, v);
    GT_STORE_EACH(param, begin, p);
    if (mastered)
        GT_STORE_EACH(master, begin, p);
}
