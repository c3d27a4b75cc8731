/* gemm on CPUs: d (+)= op(a) op(b) + bias, one square tile of d per work-item, summed in fp32.
 *
 * A CPU runs a group's work-items one after the other, and values that they keep across a barrier
 * go through memory. Therefore a group is one work-item here.  For GT_INNER steps of the inner
 * dimension at a time, the rows of op(a) and the columns of op(b) are packed as fp32 into strips of
 * GT_LANES, which are read in order.  Blocks of GT_ROWS x GT_LANES of the tile are then updated in
 * registers.  Each element is one sum in increasing k, as in gemm.cl, so the bits are the same.
 * Nothing beyond the edges of d is computed.
 */
#define GT_LANES 16
#define GT_ROWS 8
#define GT_STRIPS (GT_TILE / GT_LANES)

/* Loads GT_LANES elements from number i on, aligned only to the size of one element.  Halves are
 * converted from an aligned copy, because PoCL 6.0 demands that alignment of vload_half16's pointer
 * and crashes. */
static float16 gt_load_lanes(__global const uchar *memory, ulong i, int dtype)
{
    if (dtype == DTYPE_F32)
        return vload16(0, (__global const float *)memory + i);
    const ushort16 bits = vload16(0, (__global const ushort *)memory + i);
    if (dtype == DTYPE_BF16)
        return as_float16(convert_uint16(bits) << 16);
    return vloada_half16(0, (const half *)&bits);
}

/* Packs strips, strip[k, lane] = element (row of the lane, first_inner + k), from a matrix stored
 * as rows x inner or, if `turned`, as inner x rows, whose lanes are neighbours in memory. */
GT_INLINE void gt_panel_load(__local float *panel, __global const uchar *memory, ulong at,
                             int dtype, int turned, long rows, long inner, long first_row,
                             long first_inner, int steps)
{
    for (int s = 0; s < GT_STRIPS && first_row + s * GT_LANES < rows; s++) {
        __local float *strip = panel + s * GT_INNER * GT_LANES;
        const long row = first_row + s * GT_LANES;
        const int lanes = (int)min((long)GT_LANES, rows - row);
        const ulong first =
            at + (ulong)(turned ? first_inner * rows + row : row * inner + first_inner);
        const ulong along_k = (ulong)(turned ? rows : 1), along_lanes = (ulong)(turned ? 1 : inner);
        for (int k = 0; k < steps; k++) {
            if (turned && lanes == GT_LANES) {
                vstore16(gt_load_lanes(memory, first + k * along_k, dtype), (size_t)k, strip);
                continue;
            }
            for (int lane = 0; lane < GT_LANES; lane++)
                strip[k * GT_LANES + lane] =
                    lane < lanes ? gt_load(memory, first + k * along_k + lane * along_lanes, dtype)
                                 : 0.0f;
        }
    }
}

/* sum[GT_ROWS rows of GT_TILE, GT_LANES] += the product of GT_ROWS lanes of a strip of a and a
 * strip of b. */
GT_INLINE void gt_block_add(__local float *sum, __local const float *a, __local const float *b,
                            int steps)
{
    float16 part[GT_ROWS];
#pragma unroll
    for (int r = 0; r < GT_ROWS; r++)
        part[r] = vload16(0, sum + r * GT_TILE);
    for (int k = 0; k < steps; k++) {
        const float16 right = vload16((size_t)k, b);
#pragma unroll
        for (int r = 0; r < GT_ROWS; r++)
            part[r] = gt_fma((float16)(a[k * GT_LANES + r]), right, part[r]);
    }
#pragma unroll
    for (int r = 0; r < GT_ROWS; r++)
        vstore16(part[r], 0, sum + r * GT_TILE);
}

GT_KERNEL(1)
gt_gemm_single(GT_TENSOR(a), GT_TENSOR(b), GT_TENSOR(bias), GT_TENSOR(d), int transpose_a,
               int transpose_b, int accumulate, long m, long n, long k)
{
    __local float panel_a[GT_INNER * GT_TILE], panel_b[GT_INNER * GT_TILE], sum[GT_TILE * GT_TILE];
    long first_row, first_column;
    gt_tile_place(m, n, GT_TILE, &first_row, &first_column);
    const int rows = (int)min((long)GT_TILE, m - first_row),
              columns = (int)min((long)GT_TILE, n - first_column);
    for (int e = 0; e < GT_TILE * GT_TILE; e++)
        sum[e] = 0.0f;
    for (long first = 0; first < k; first += GT_INNER) {
        const int steps = (int)min((long)GT_INNER, k - first);
        gt_panel_load(panel_a, a, a_at, a_dtype, transpose_a, m, k, first_row, first, steps);
        gt_panel_load(panel_b, b, b_at, b_dtype, !transpose_b, n, k, first_column, first, steps);
        for (int column = 0; column < columns; column += GT_LANES) {
            for (int row = 0; row < rows; row += GT_ROWS)
                gt_block_add(sum + row * GT_TILE + column,
                             panel_a + row / GT_LANES * (GT_INNER * GT_LANES) + row % GT_LANES,
                             panel_b + column * GT_INNER, steps);
        }
    }
    for (int row = 0; row < rows; row++) {
        for (int column = 0; column < columns; column++) {
            const long at = (first_row + row) * n + first_column + column;
            GT_GEMM_END(at, first_column + column, sum[row * GT_TILE + column]);
        }
    }
}
