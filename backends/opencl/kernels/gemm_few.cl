/* gemm of few rows with b transposed, as in decoding; and the bias of products that a library
 * computes.
 *
 * b is read once, in memory order: GT_FEW_LANES work-items for each column of d.
 */
#define GT_FEW_ROWS 8
#define GT_FEW_LANES 16
#define GT_FEW_COLUMNS 4 /* per group */
#define GT_FEW_ITEMS (GT_FEW_COLUMNS * GT_FEW_LANES)

/* d (+)= a b' + bias for m <= GT_FEW_ROWS rows. */
GT_KERNEL(GT_FEW_ITEMS)
gt_gemm_few(GT_TENSOR(a), GT_TENSOR(b), GT_TENSOR(bias), GT_TENSOR(d), int accumulate, long m,
            long n, long k)
{
    __local float part[GT_FEW_ROWS * GT_FEW_ITEMS];
    const uint item = (uint)get_local_id(0), lane = item % GT_FEW_LANES;
    const long first_column = gt_group_index(0) * GT_FEW_COLUMNS,
               own = first_column + item / GT_FEW_LANES;
    const long column = min(own, n - 1); /* beyond the edge, the last column stands in */
    float sum[GT_FEW_ROWS];
    for (int r = 0; r < GT_FEW_ROWS; r++)
        sum[r] = 0.0f;
    for (long i = lane; i < k; i += GT_FEW_LANES) {
        const float right = GT_LOAD(b, column * k + i);
        for (int r = 0; r < GT_FEW_ROWS; r++) {
            if (r < m)
                sum[r] = gt_fma(GT_LOAD(a, r * k + i), right, sum[r]);
        }
    }
    for (int r = 0; r < GT_FEW_ROWS; r++)
        part[r * GT_FEW_ITEMS + item] = sum[r];
    GT_SYNC();
    for (uint e = item; e < GT_FEW_COLUMNS * GT_FEW_ROWS; e += GT_FEW_ITEMS) {
        const uint row = e / GT_FEW_COLUMNS, place = e % GT_FEW_COLUMNS;
        const long to = row * n + first_column + place;
        if (row >= m || first_column + place >= n)
            continue;
        float value = 0.0f;
        for (uint l = 0; l < GT_FEW_LANES; l++)
            value += part[row * GT_FEW_ITEMS + place * GT_FEW_LANES + l];
        GT_GEMM_END(to, first_column + place, value);
    }
}

/* Sets every row of d to the bias, for a library that can only add to d. */
__kernel void gt_gemm_bias(GT_TENSOR(bias), GT_TENSOR(d), long n)
{
    long row;
    const long column = gt_column(n, &row);
    if (column < n)
        GT_STORE(d, row * n + column, GT_LOAD(bias, column));
}
