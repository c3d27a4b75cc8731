/* bias_backward: the sum of the rows of dy; and the sum of the rows of any workspace of partial sums.
 *
 * One work-item per column and part of the rows.  Parts are added in order.
 */
__kernel void gt_bias_backward_partial(GT_TENSOR(dy), GT_ARRAY(float, partial), long rows, long part_rows, long columns)
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
__kernel void gt_columns_sum(GT_ARRAY(const float, partial), GT_TENSOR(out), int accumulate, long first, long parts,
                             long columns)
{
    const long c = (long)get_global_id(0);
    if (c >= columns)
        return;
    float sum = 0.0f;
    for (long part = 0; part < parts; part++)
        sum += GT_AT(partial, first + part * columns + c);
    GT_STORE(out, c, accumulate ? GT_LOAD(out, c) + sum : sum);
}
