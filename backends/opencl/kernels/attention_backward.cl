/* attention_backward: dq, dk and dv from recomputed weights, without atomics and without anything
 * of size T x T.
 *
 * With p = exp(s - lse), f the dropout factors and delta = rowsum(dy y):
 *     dv += (p f)' dy,   ds = p (f (dy v') - delta),   dk += ds' q,   dq += ds k
 *                        Dao 2023, algorithm 2
 * gt_attention_delta has written delta to the workspace.  The kernel is compiled twice.  By keys
 * (GT_BY_KEYS 1) it computes dk and dv: one group per tile of keys of a key-value head, over all
 * queries at or after it, of all heads that share it.  By queries it computes dq: one group per
 * tile of queries, over all keys up to it.  Both skip tiles of other documents and beyond windows.
 * Scores are computed twice, so that every sum has one owner and dq needs no scratch memory.  A
 * group is 8 x 8 work-items.  It owns the wide side of the tile (GT_WIDE rows) and loops over the
 * narrow side (GT_NARROW rows).
 */
#if GT_SLICES > 16
#define GT_WIDE 8
#define GT_NARROW 8
#elif GT_SLICES > 8
#define GT_WIDE 16
#define GT_NARROW 8
#else
#define GT_WIDE 32
#define GT_NARROW 16
#endif
#define GT_WIDE_EACH (GT_WIDE / 8)
#define GT_QUERIES (GT_BY_KEYS ? GT_NARROW : GT_WIDE)
#define GT_KEYS (GT_BY_KEYS ? GT_WIDE : GT_NARROW)
#define GT_DOWN (GT_QUERIES / 8) /* queries and keys of a work-item */
#define GT_ACROSS (GT_KEYS / 8)
#define GT_SCORE_PITCH (GT_KEYS + 1)

/* Returns the end of the queries from `low` on that see a key before `limit`.  The first key that a
 * query sees never decreases from query to query.  `begin` has the documents of the sample's rows.
 */
static int gt_queries_end(__global const int *begin, int documents, int window, int low, int end,
                          int limit)
{
    while (low < end) {
        const int middle = (low + end) / 2;
        if (gt_begin(documents ? begin[middle] : 0, window, middle) < limit)
            low = middle + 1;
        else
            end = middle;
    }
    return end;
}

/* Computes the products of a work-item's rows of q and k, and of those of dy and v. */
static void gt_products(const __local float *q, const __local float *slope, const __local float *k,
                        const __local float *v, int x, int y, int size,
                        float product[GT_DOWN][GT_ACROSS], float value_slope[GT_DOWN][GT_ACROSS])
{
    for (int r = 0; r < GT_DOWN; r++) {
        for (int c = 0; c < GT_ACROSS; c++)
            product[r][c] = value_slope[r][c] = 0.0f;
    }
    for (int d = 0; d < size; d++) {
        for (int c = 0; c < GT_ACROSS; c++) {
            const float right = k[(x + 8 * c) * GT_PITCH + d],
                        right_value = v[(x + 8 * c) * GT_PITCH + d];
            for (int r = 0; r < GT_DOWN; r++) {
                const int at = (y * GT_DOWN + r) * GT_PITCH + d;
                product[r][c] = gt_fma(q[at], right, product[r][c]);
                value_slope[r][c] = gt_fma(slope[at], right_value, value_slope[r][c]);
            }
        }
    }
}

GT_KERNEL(GT_ITEMS)
gt_attention_backward(GT_TENSOR(dy), GT_TENSOR(qkv), GT_ARRAY(const float, lse), GT_SCALARS,
                      GT_TENSOR(dqkv), GT_ARRAY(const int, begin), GT_ARRAY(const float, delta),
                      int documents, int window, int time, int heads, int kv_heads, int size,
                      float scale, int site, uint threshold, float kept_scale)
{
    __local float q[GT_QUERIES * GT_PITCH], slope[GT_QUERIES * GT_PITCH], k[GT_KEYS * GT_PITCH],
        v[GT_KEYS * GT_PITCH];
    __local float score_slope[GT_QUERIES * GT_SCORE_PITCH], row_lse[GT_QUERIES],
        row_delta[GT_QUERIES];
#if GT_BY_KEYS
    __local float weight[GT_QUERIES * GT_SCORE_PITCH];
#endif
    __local int row_begin[GT_QUERIES];
    __local uint kept[GT_QUERIES * GT_KEYS / 8];
    const int item = (int)get_local_id(0), x = item % 8, y = item / 8,
              tiles = (time + GT_WIDE - 1) / GT_WIDE;
    const int own_heads = GT_BY_KEYS ? kv_heads : heads;
    const long index = gt_group_index(0), sample = index / ((long)tiles * own_heads),
               row = sample * time;
    const long qkv_row = (long)(heads + 2 * kv_heads) * size, dy_row = (long)heads * size;
    const int own_head = (int)(index / tiles % own_heads), tile = (int)(index % tiles);
    const int own = (GT_BY_KEYS ? tile : tiles - 1 - tile) * GT_WIDE,
              own_rows = min(time - own, GT_WIDE);
    const int kv_head = GT_BY_KEYS ? own_head : own_head / (heads / kv_heads);
    const long k_start = row * qkv_row + (long)(heads + kv_head) * size,
               v_start = k_start + (long)kv_heads * size;
    float sum[GT_WIDE_EACH][GT_SLICES], sum_v[GT_WIDE_EACH][GT_SLICES]; /* of dk or dq, and of dv */
    for (int r = 0; r < GT_WIDE_EACH; r++) {
        for (int s = 0; s < GT_SLICES; s++)
            sum[r][s] = sum_v[r][s] = 0.0f;
    }
    int first = own, end = own + own_rows,
        walks = 1; /* passes over the narrow side, one for each head */
#if GT_BY_KEYS
    if (documents || window > 0)
        end = gt_queries_end(begin + begin_at + (ulong)row, documents, window, own, time,
                             own + own_rows);
    else
        end = time;
    walks = heads / kv_heads;
#else
    first = gt_begin(documents ? GT_AT(begin, row + own) : 0, window, own) / GT_KEYS * GT_KEYS;
#endif
    const int steps = (end - first + GT_NARROW - 1) / GT_NARROW;
    for (int pass = 0; pass < steps * walks; pass++) {
        const int other = first + pass % steps * GT_NARROW;
        const int head = GT_BY_KEYS ? kv_head * (heads / kv_heads) + pass / steps : own_head;
        const int query = GT_BY_KEYS ? other : own, key = GT_BY_KEYS ? own : other;
        const int queries = min(time - query, GT_QUERIES);
        const int keys = GT_BY_KEYS ? own_rows : min(end - key, GT_KEYS);
        const struct dropout_mask mask = dropout_mask_of(
            &GT_AT(scalars, 0), (uint)site + ((uint)head << 16), (uint)sample, threshold);
        if (GT_BY_KEYS || pass == 0) {
            const long statistic = (sample * heads + head) * time + query;
            gt_rows_load(q, GT_QUERIES, qkv,
                         qkv_at + (ulong)((row + query) * qkv_row + (long)head * size), qkv_dtype,
                         qkv_row, queries, size);
            gt_rows_load(slope, GT_QUERIES, dy,
                         dy_at + (ulong)((row + query) * dy_row + (long)head * size), dy_dtype,
                         dy_row, queries, size);
            if (item < GT_QUERIES) {
                row_lse[item] = item < queries ? GT_AT(lse, statistic + item) : 0.0f;
                row_delta[item] = item < queries ? GT_AT(delta, statistic + item) : 0.0f;
                row_begin[item] =
                    gt_begin(documents && item < queries ? GT_AT(begin, row + query + item) : 0,
                             window, query + item);
            }
        }
        if (!GT_BY_KEYS || pass == 0) {
            gt_rows_load(k, GT_KEYS, qkv, qkv_at + (ulong)(k_start + key * qkv_row), qkv_dtype,
                         qkv_row, keys, size);
            gt_rows_load(v, GT_KEYS, qkv, qkv_at + (ulong)(v_start + key * qkv_row), qkv_dtype,
                         qkv_row, keys, size);
        }
        gt_kept_fill(kept, GT_QUERIES, GT_KEYS, time, query, key, &mask);
        GT_SYNC();
        float product[GT_DOWN][GT_ACROSS],
            value_slope[GT_DOWN][GT_ACROSS]; /* of q and k, and of dy and v */
        gt_products(q, slope, k, v, x, y, size, product, value_slope);
        for (int r = 0; r < GT_DOWN; r++) {
            for (int c = 0; c < GT_ACROSS; c++) {
                const int i = y * GT_DOWN + r, j = x + 8 * c;
                const bool visible = i < queries && key + j <= query + i && key + j >= row_begin[i];
                const uint bit =
                    threshold == 0 ? 1u : kept[i * (GT_KEYS / 8) + j / 8] >> (j % 8) & 1u;
                const float p = visible ? exp(product[r][c] * scale - row_lse[i]) : 0.0f;
                const float factor = threshold == 0 ? 1.0f : bit != 0 ? kept_scale : 0.0f;
                score_slope[i * GT_SCORE_PITCH + j] =
                    visible ? p * (value_slope[r][c] * factor - row_delta[i]) : 0.0f;
#if GT_BY_KEYS
                weight[i * GT_SCORE_PITCH + j] = p * factor;
#endif
            }
        }
        GT_SYNC();
        for (int i = 0; i < GT_NARROW; i++) {
            for (int s = 0; s < GT_SLICES; s++) {
                const int from = i * GT_PITCH + x + 8 * s;
                for (int r = 0; r < GT_WIDE_EACH; r++) {
#if GT_BY_KEYS
                    const int at = i * GT_SCORE_PITCH + y * GT_WIDE_EACH + r;
                    sum[r][s] = gt_fma(score_slope[at], q[from], sum[r][s]);
                    sum_v[r][s] = gt_fma(weight[at], slope[from], sum_v[r][s]);
#else
                    const int at = (y * GT_WIDE_EACH + r) * GT_SCORE_PITCH + i;
                    sum[r][s] = gt_fma(score_slope[at], k[from], sum[r][s]);
#endif
                }
            }
        }
        GT_SYNC();
    }
    const long to = GT_BY_KEYS ? k_start : row * qkv_row + (long)own_head * size;
    for (int r = 0; r < GT_WIDE_EACH; r++) {
        for (int s = 0; s < GT_SLICES; s++) {
            const int i = y * GT_WIDE_EACH + r, d = x + 8 * s;
            if (i < own_rows && d < size) {
                GT_STORE(dqkv, to + (own + i) * qkv_row + d, sum[r][s] * scale);
                if (GT_BY_KEYS)
                    GT_STORE(dqkv, v_start + (own + i) * qkv_row + d, sum_v[r][s]);
            }
        }
    }
}
