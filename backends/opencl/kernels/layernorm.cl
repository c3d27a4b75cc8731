/* layernorm and rmsnorm, forward and backward: one group per row; bias_backward; sums over rows in
 * parts.
 *
 * The operands of the two norms have the same numbers (ops/layernorm.c); rmsnorm is a layernorm
 * whose mean is absent, and counts as 0.  An absent gain is 1.
 *
 * The variance is computed from the deviations from the mean, in a second pass over the row, which
 * is in the cache by then.  For dgain, dbias and the result of bias_backward, each part of the rows
 * writes its sums to the workspace, one work-item per channel, and gt_columns_sum adds the parts in
 * order.
 */
#define GT_MEAN(n) (mean_dtype >= 0 ? GT_LOAD(mean, n) : 0.0f)
#define GT_GAIN(c) (gain_dtype >= 0 ? GT_LOAD(gain, c) + gain_offset : 1.0f)

GT_KERNEL(GT_GROUP)
gt_layernorm_forward(GT_TENSOR(x), GT_TENSOR(gain), GT_TENSOR(y), GT_ARRAY(float, rstd),
                     GT_TENSOR(bias), GT_TENSOR(mean), float epsilon, float gain_offset,
                     long channels)
{
    __local float scratch[GT_GROUP];
    const long n = gt_group_index(0), first = n * channels;
    float sum = 0.0f, square = 0.0f;
    for (long c = (long)get_local_id(0); mean_dtype >= 0 && c < channels; c += GT_GROUP)
        sum += GT_LOAD(x, first + c);
    const float centre = gt_group_sum(sum, scratch) / (float)channels;
    for (long c = (long)get_local_id(0); c < channels; c += GT_GROUP) {
        const float deviation = GT_LOAD(x, first + c) - centre;
        square = gt_fma(deviation, deviation, square);
    }
    const float variance = gt_group_sum(square, scratch) / (float)channels;
    const float inverse = 1.0f / sqrt(variance + epsilon);
    for (long c = (long)get_local_id(0); c < channels; c += GT_GROUP) {
        const float scaled = (GT_LOAD(x, first + c) - centre) * inverse * GT_GAIN(c);
        GT_STORE(y, first + c, bias_dtype >= 0 ? scaled + GT_LOAD(bias, c) : scaled);
    }
    if (get_local_id(0) == 0) {
        if (mean_dtype >= 0)
            GT_STORE(mean, n, centre);
        GT_AT(rstd, n) = inverse;
    }
}

GT_KERNEL(GT_GROUP)
gt_layernorm_backward(GT_TENSOR(dy), GT_TENSOR(x), GT_TENSOR(gain), GT_ARRAY(const float, rstd),
                      GT_TENSOR(dx), GT_TENSOR(mean), float gain_offset, int accumulate,
                      long channels)
{
    __local float scratch[GT_GROUP];
    const long n = gt_group_index(0), first = n * channels;
    const float centre = GT_MEAN(n), inverse = GT_AT(rstd, n);
    float sum = 0.0f, product = 0.0f;
    for (long c = (long)get_local_id(0); c < channels; c += GT_GROUP) {
        const float slope = GT_LOAD(dy, first + c) * GT_GAIN(c);
        sum += slope;
        product = gt_fma(slope, (GT_LOAD(x, first + c) - centre) * inverse, product);
    }
    const float slope_mean = mean_dtype >= 0 ? gt_group_sum(sum, scratch) / (float)channels : 0.0f;
    const float product_mean = gt_group_sum(product, scratch) / (float)channels;
    for (long c = (long)get_local_id(0); c < channels; c += GT_GROUP) {
        const float slope = GT_LOAD(dy, first + c) * GT_GAIN(c);
        const float normal = (GT_LOAD(x, first + c) - centre) * inverse;
        const float gradient = inverse * (slope - slope_mean - normal * product_mean);
        GT_STORE(dx, first + c, accumulate ? GT_LOAD(dx, first + c) + gradient : gradient);
    }
}

/* partial[part, c] and, if there is a mean, partial[parts + part, c]: the contributions of the
 * part's rows to dgain and dbias. */
__kernel void gt_layernorm_backward_partial(GT_TENSOR(dy), GT_TENSOR(x),
                                            GT_ARRAY(const float, rstd), GT_TENSOR(mean),
                                            GT_ARRAY(float, partial), long rows, long part_rows,
                                            long parts, long channels)
{
    long part;
    const long c = gt_column(channels, &part);
    if (c >= channels)
        return;
    const long end = min((part + 1) * part_rows, rows);
    float gain_sum = 0.0f, bias_sum = 0.0f;
    for (long n = part * part_rows; n < end; n++) {
        const float slope = GT_LOAD(dy, n * channels + c);
        gain_sum =
            gt_fma(slope, (GT_LOAD(x, n * channels + c) - GT_MEAN(n)) * GT_AT(rstd, n), gain_sum);
        bias_sum += slope;
    }
    GT_AT(partial, part * channels + c) = gain_sum;
    if (mean_dtype >= 0)
        GT_AT(partial, (parts + part) * channels + c) = bias_sum;
}

/* The same for bias_backward. */
__kernel void gt_bias_backward_partial(GT_TENSOR(dy), GT_ARRAY(float, partial), long rows,
                                       long part_rows, long columns)
{
    long part;
    const long c = gt_column(columns, &part);
    if (c >= columns)
        return;
    const long end = min((part + 1) * part_rows, rows);
    float sum = 0.0f;
    for (long n = part * part_rows; n < end; n++)
        sum += GT_LOAD(dy, n * columns + c);
    GT_AT(partial, part * columns + c) = sum;
}

/* out (+)= the sum over rows of [parts, columns], which begins at element `first` of partial. */
__kernel void gt_columns_sum(GT_ARRAY(const float, partial), GT_TENSOR(out), int accumulate,
                             long first, long parts, long columns)
{
    const long c = (long)get_global_id(0);
    if (c >= columns)
        return;
    float sum = 0.0f;
    for (long part = 0; part < parts; part++)
        sum += GT_AT(partial, first + part * columns + c);
    GT_STORE(out, c, accumulate ? GT_LOAD(out, c) + sum : sum);
}
