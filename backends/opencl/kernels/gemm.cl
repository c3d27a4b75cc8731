/* gemm: d (+)= op(a) op(b) + bias, one square tile of d per group, summed in fp32.
 *
 * A group has GT_SIDE x GT_SIDE work-items with GT_EACH x GT_EACH elements each.  It reads GT_INNER
 * steps of the inner dimension at a time into local memory, converted to fp32.  K is never divided
 * among groups, so the order of a sum follows from the shape.  Other kernels compute 16-bit
 * products on devices with matrix units for them (gemm_matrix.cl), products of few rows
 * (gemm_few.cl), and products on CPUs (gemm_single.cl).
 */
#define GT_TILE (GT_SIDE * GT_EACH)
#define GT_ITEMS (GT_SIDE * GT_SIDE)
#define GT_PITCH (GT_TILE + 1) /* so that columns of a tile fall into different banks */

/* tile[k, row] = element (first_row + row, first_inner + k) of a matrix, 0 outside it.  The matrix
 * is stored as rows x inner or, if `turned`, as inner x rows; in both cases neighbouring work-items
 * read neighbouring elements. */
GT_INLINE void gt_tile_load(__local float *tile, __global const uchar *memory, ulong at, int dtype,
                            int turned, long rows, long inner, long first_row, long first_inner)
{
    for (uint e = (uint)get_local_id(0); e < GT_TILE * GT_INNER; e += GT_ITEMS) {
        const uint row = turned ? e % GT_TILE : e / GT_INNER,
                   k = turned ? e / GT_TILE : e % GT_INNER;
        const long r = first_row + row, i = first_inner + k;
        float value = 0.0f;
        if (r < rows && i < inner)
            value = gt_load(memory, at + (ulong)(turned ? i * rows + r : r * inner + i), dtype);
        tile[k * GT_PITCH + row] = value;
    }
}

GT_KERNEL(GT_ITEMS)
gt_gemm(GT_TENSOR(a), GT_TENSOR(b), GT_TENSOR(bias), GT_TENSOR(d), int transpose_a, int transpose_b,
        int accumulate, long m, long n, long k)
{
    __local float tile_a[GT_INNER * GT_PITCH], tile_b[GT_INNER * GT_PITCH];
    const uint x = (uint)get_local_id(0) % GT_SIDE, y = (uint)get_local_id(0) / GT_SIDE;
    long first_row, first_column;
    gt_tile_place(m, n, GT_TILE, &first_row, &first_column);
    float sum[GT_EACH][GT_EACH];
    for (int i = 0; i < GT_EACH; i++) {
        for (int j = 0; j < GT_EACH; j++)
            sum[i][j] = 0.0f;
    }
    for (long first = 0; first < k; first += GT_INNER) {
        gt_tile_load(tile_a, a, a_at, a_dtype, transpose_a, m, k, first_row, first);
        gt_tile_load(tile_b, b, b_at, b_dtype, !transpose_b, n, k, first_column, first);
        GT_SYNC();
        for (int step = 0; step < GT_INNER; step++) {
            float left[GT_EACH], right[GT_EACH];
            for (int i = 0; i < GT_EACH; i++) {
                left[i] = tile_a[step * GT_PITCH + y + GT_SIDE * i];
                right[i] = tile_b[step * GT_PITCH + x + GT_SIDE * i];
            }
            for (int i = 0; i < GT_EACH; i++) {
                for (int j = 0; j < GT_EACH; j++)
                    sum[i][j] = gt_fma(left[i], right[j], sum[i][j]);
            }
        }
        GT_SYNC();
    }
    for (int i = 0; i < GT_EACH; i++) {
        const long row = first_row + y + GT_SIDE * i;
        for (int j = 0; j < GT_EACH; j++) {
            const long column = first_column + x + GT_SIDE * j, at = row * n + column;
            if (row < m && column < n)
                GT_GEMM_END(at, column, sum[i][j]);
        }
    }
}
