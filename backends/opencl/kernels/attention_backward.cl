/* attention_backward: dq, dk and dv from recomputed weights, without atomics and without anything of size T x T.
 *
 * With p = exp(s - lse), f the dropout factors and delta = rowsum(dy y):
 *     dv += (p f)' dy,   ds = p (f (dy v') - delta),   dk += ds' q,   dq += ds k                 Dao 2023, algorithm 2
 * The first kernel writes delta to the workspace.  The second computes dk and dv: one group per tile of keys of a
 * key-value head, over all queries at or after it, of all heads that share it.  The third computes dq: one group per
 * tile of queries, over all keys up to it.  Both skip tiles of other documents.  Scores are computed twice, so that
 * every sum has one owner and dq needs no scratch memory.  A group is 8 x 8 work-items.  It owns the wide side of the
 * tile (GT_WIDE rows) and loops over the narrow side (GT_NARROW rows).
 */
#if GT_SLICES > 8
#define GT_WIDE 16
#define GT_NARROW 8
#else
#define GT_WIDE 32
#define GT_NARROW 16
#endif
#define GT_WIDE_EACH (GT_WIDE / 8)
#define GT_NARROW_EACH (GT_NARROW / 8)

struct gt_shape {
    int time, heads, heads_per_kv, size;
    long row; /* of qkv */
    float scale;
    uint threshold;
    float kept_scale;
};

/* Converts one element, the score product and the gradient of the dropped-out weight, to p f and ds.  `bit` is 1 if
 * dropout keeps the element. */
static void gt_weight(const struct gt_shape *shape, bool visible, float product, float slope, float lse, float delta,
                      uint bit, float *weight, float *score_slope)
{
    const float p = visible ? exp(product * shape->scale - lse) : 0.0f;
    const float factor = shape->threshold == 0 ? 1.0f : bit != 0 ? shape->kept_scale : 0.0f;
    *weight = p * factor;
    *score_slope = visible ? p * (slope * factor - delta) : 0.0f;
}

/* Computes `down` by `across` products of q and k, and value_slope of dy and v, per work-item. */
#define GT_PRODUCTS(down, across)                                                                           \
    float product[down][across], value_slope[down][across];                                                 \
    for (int r = 0; r < (down); r++) {                                                                      \
        for (int c = 0; c < (across); c++)                                                                  \
            product[r][c] = value_slope[r][c] = 0.0f;                                                       \
    }                                                                                                       \
    for (int d = 0; d < size; d++) {                                                                        \
        for (int c = 0; c < (across); c++) {                                                                \
            const float right = k[(x + 8 * c) * GT_PITCH + d], right_value = v[(x + 8 * c) * GT_PITCH + d]; \
            for (int r = 0; r < (down); r++) {                                                              \
                const int at = (y * (down) + r) * GT_PITCH + d;                                             \
                product[r][c] = gt_fma(q[at], right, product[r][c]);                                        \
                value_slope[r][c] = gt_fma(slope[at], right_value, value_slope[r][c]);                      \
            }                                                                                               \
        }                                                                                                   \
    }

/* delta[sample, head, t] = the sum over d of dy y; one work-item per head of a row. */
__kernel void gt_attention_delta(GT_TENSOR(dy), GT_TENSOR(y), GT_ARRAY(float, delta), int time, int heads, int size)
{
    long n;
    const int head = (int)gt_column(heads, &n);
    const long first = (n * heads + head) * size;
    if (head >= heads)
        return;
    float sum = 0.0f;
    for (int d = 0; d < size; d++)
        sum = gt_fma(GT_LOAD(dy, first + d), GT_LOAD(y, first + d), sum);
    GT_AT(delta, (n / time * heads + head) * time + n % time) = sum;
}

GT_KERNEL(GT_ITEMS)
gt_attention_backward_keys(GT_TENSOR(dy), GT_TENSOR(qkv), GT_ARRAY(const float, lse), GT_ARRAY(const uint, scalars),
                           GT_TENSOR(dqkv), GT_ARRAY(const int, begin), GT_ARRAY(const float, delta), int documents,
                           int time, int heads, int kv_heads, int size, float scale, int site, uint threshold,
                           float kept_scale)
{
    __local float k[GT_WIDE * GT_PITCH], v[GT_WIDE * GT_PITCH], q[GT_NARROW * GT_PITCH], slope[GT_NARROW * GT_PITCH];
    __local float weight[GT_NARROW * (GT_WIDE + 1)], score_slope[GT_NARROW * (GT_WIDE + 1)];
    __local float row_lse[GT_NARROW], row_delta[GT_NARROW];
    __local int row_begin[GT_NARROW];
    __local uint kept[GT_NARROW * GT_WIDE / 8];
    const struct gt_shape shape = {time,  heads,     heads / kv_heads, size, (long)(heads + 2 * kv_heads) * size,
                                   scale, threshold, kept_scale};
    const int item = (int)get_local_id(0), x = item % 8, y = item / 8, tiles = (time + GT_WIDE - 1) / GT_WIDE;
    const long index = gt_group_index(0), sample = index / ((long)tiles * kv_heads);
    const int kv_head = (int)(index / tiles % kv_heads), key = (int)(index % tiles) * GT_WIDE;
    const int keys = min(time - key, GT_WIDE);
    const long start = sample * time * shape.row;
    const long k_first = start + key * shape.row + (long)(heads + kv_head) * size;
    const long v_first = k_first + (long)kv_heads * size;
    const uint mask_sample = GT_AT(scalars, GT_SAMPLE_BASE) + (uint)sample;
    float dk[GT_WIDE_EACH][GT_SLICES], dv[GT_WIDE_EACH][GT_SLICES];
    for (int r = 0; r < GT_WIDE_EACH; r++) {
        for (int s = 0; s < GT_SLICES; s++)
            dk[r][s] = dv[r][s] = 0.0f;
    }
    gt_rows_load(k, GT_WIDE, qkv, qkv_at + (ulong)k_first, qkv_dtype, shape.row, keys, size);
    gt_rows_load(v, GT_WIDE, qkv, qkv_at + (ulong)v_first, qkv_dtype, shape.row, keys, size);
    int end = time; /* of the queries that see one of the keys */
    for (int low = key; documents && low < end;) {
        const int middle = (low + end) / 2;
        if (GT_AT(begin, sample * time + middle) < key + keys)
            low = middle + 1;
        else
            end = middle;
    }
    const int steps = (end - key + GT_NARROW - 1) / GT_NARROW;
    for (int pass = 0; pass < steps * shape.heads_per_kv; pass++) {
        const int head = kv_head * shape.heads_per_kv + pass / steps, query = key + pass % steps * GT_NARROW;
        const int rows = min(time - query, GT_NARROW);
        const long dy_row = (long)heads * size, dy_first = (sample * time + query) * dy_row + (long)head * size;
        const long statistic = (sample * heads + head) * time + query;
        const uint4 counter = (uint4)(0, (uint)site + ((uint)head << 16), mask_sample, GT_AT(scalars, GT_STEP));
        gt_rows_load(q, GT_NARROW, qkv, qkv_at + (ulong)(start + query * shape.row + (long)head * size), qkv_dtype,
                     shape.row, rows, size);
        gt_rows_load(slope, GT_NARROW, dy, dy_at + (ulong)dy_first, dy_dtype, dy_row, rows, size);
        if (item < GT_NARROW) {
            row_lse[item] = item < rows ? GT_AT(lse, statistic + item) : 0.0f;
            row_delta[item] = item < rows ? GT_AT(delta, statistic + item) : 0.0f;
            row_begin[item] = documents && item < rows ? GT_AT(begin, sample * time + query + item) : 0;
        }
        gt_kept_fill(kept, GT_NARROW, GT_WIDE, time, query, key, counter, GT_AT(scalars, GT_SEED_LO),
                     GT_AT(scalars, GT_SEED_HI), threshold);
        GT_SYNC();
        GT_PRODUCTS(GT_NARROW_EACH, GT_WIDE_EACH)
        for (int r = 0; r < GT_NARROW_EACH; r++) {
            for (int c = 0; c < GT_WIDE_EACH; c++) {
                const int i = y * GT_NARROW_EACH + r, j = x + 8 * c, at = i * (GT_WIDE + 1) + j;
                const bool visible = i < rows && key + j <= query + i && key + j >= row_begin[i];
                const uint bit = threshold == 0 ? 1u : kept[i * (GT_WIDE / 8) + j / 8] >> (j % 8) & 1u;
                float pf, ds;
                gt_weight(&shape, visible, product[r][c], value_slope[r][c], row_lse[i], row_delta[i], bit, &pf, &ds);
                weight[at] = pf;
                score_slope[at] = ds;
            }
        }
        GT_SYNC();
        for (int i = 0; i < GT_NARROW; i++) {
            for (int s = 0; s < GT_SLICES; s++) {
                const float right = q[i * GT_PITCH + x + 8 * s], right_slope = slope[i * GT_PITCH + x + 8 * s];
                for (int r = 0; r < GT_WIDE_EACH; r++) {
                    const int at = i * (GT_WIDE + 1) + y * GT_WIDE_EACH + r;
                    dk[r][s] = gt_fma(score_slope[at], right, dk[r][s]);
                    dv[r][s] = gt_fma(weight[at], right_slope, dv[r][s]);
                }
            }
        }
        GT_SYNC();
    }
    for (int r = 0; r < GT_WIDE_EACH; r++) {
        for (int s = 0; s < GT_SLICES; s++) {
            const int j = y * GT_WIDE_EACH + r, d = x + 8 * s;
            if (j < keys && d < size) {
                GT_STORE(dqkv, k_first + j * shape.row + d, dk[r][s] * scale);
                GT_STORE(dqkv, v_first + j * shape.row + d, dv[r][s]);
            }
        }
    }
}

GT_KERNEL(GT_ITEMS)
gt_attention_backward_queries(GT_TENSOR(dy), GT_TENSOR(qkv), GT_ARRAY(const float, lse), GT_ARRAY(const uint, scalars),
                              GT_TENSOR(dqkv), GT_ARRAY(const int, begin), GT_ARRAY(const float, delta), int documents,
                              int time, int heads, int kv_heads, int size, float scale, int site, uint threshold,
                              float kept_scale)
{
    __local float q[GT_WIDE * GT_PITCH], slope[GT_WIDE * GT_PITCH], k[GT_NARROW * GT_PITCH], v[GT_NARROW * GT_PITCH];
    __local float score_slope[GT_WIDE * (GT_NARROW + 1)];
    __local uint kept[GT_NARROW * GT_WIDE / 8];
    const struct gt_shape shape = {time,  heads,     heads / kv_heads, size, (long)(heads + 2 * kv_heads) * size,
                                   scale, threshold, kept_scale};
    const int item = (int)get_local_id(0), x = item % 8, y = item / 8, tiles = (time + GT_WIDE - 1) / GT_WIDE;
    const long index = gt_group_index(0), sample = index / ((long)tiles * heads);
    const int head = (int)(index / tiles % heads), query = (tiles - 1 - (int)(index % tiles)) * GT_WIDE;
    const int rows = min(time - query, GT_WIDE), end = query + rows;
    const long start = sample * time * shape.row, q_first = start + query * shape.row + (long)head * size;
    const long k_start = start + (long)(heads + head / shape.heads_per_kv) * size,
               v_start = k_start + (long)kv_heads * size;
    const long dy_row = (long)heads * size, dy_first = (sample * time + query) * dy_row + (long)head * size;
    const long statistic = (sample * heads + head) * time + query;
    const uint4 counter = (uint4)(0, (uint)site + ((uint)head << 16), GT_AT(scalars, GT_SAMPLE_BASE) + (uint)sample,
                                  GT_AT(scalars, GT_STEP));
    const int key_start = documents ? GT_AT(begin, sample * time + query) / GT_NARROW * GT_NARROW : 0;
    float dq[GT_WIDE_EACH][GT_SLICES], row_lse[GT_WIDE_EACH], row_delta[GT_WIDE_EACH];
    int row_begin[GT_WIDE_EACH];
    for (int r = 0; r < GT_WIDE_EACH; r++) {
        const int i = y * GT_WIDE_EACH + r;
        row_lse[r] = i < rows ? GT_AT(lse, statistic + i) : 0.0f;
        row_delta[r] = i < rows ? GT_AT(delta, statistic + i) : 0.0f;
        row_begin[r] = documents && i < rows ? GT_AT(begin, sample * time + query + i) : 0;
        for (int s = 0; s < GT_SLICES; s++)
            dq[r][s] = 0.0f;
    }
    gt_rows_load(q, GT_WIDE, qkv, qkv_at + (ulong)q_first, qkv_dtype, shape.row, rows, size);
    gt_rows_load(slope, GT_WIDE, dy, dy_at + (ulong)dy_first, dy_dtype, dy_row, rows, size);
    for (int key = key_start; key < end; key += GT_NARROW) {
        const int keys = min(end - key, GT_NARROW);
        gt_rows_load(k, GT_NARROW, qkv, qkv_at + (ulong)(k_start + key * shape.row), qkv_dtype, shape.row, keys, size);
        gt_rows_load(v, GT_NARROW, qkv, qkv_at + (ulong)(v_start + key * shape.row), qkv_dtype, shape.row, keys, size);
        gt_kept_fill(kept, GT_WIDE, GT_NARROW, time, query, key, counter, GT_AT(scalars, GT_SEED_LO),
                     GT_AT(scalars, GT_SEED_HI), threshold);
        GT_SYNC();
        GT_PRODUCTS(GT_WIDE_EACH, GT_NARROW_EACH)
        for (int r = 0; r < GT_WIDE_EACH; r++) {
            for (int c = 0; c < GT_NARROW_EACH; c++) {
                const int i = y * GT_WIDE_EACH + r, j = x + 8 * c;
                const bool visible = i < rows && key + j <= query + i && key + j >= row_begin[r];
                const uint bit = threshold == 0 ? 1u : kept[i * (GT_NARROW / 8) + j / 8] >> (j % 8) & 1u;
                float pf, ds;
                gt_weight(&shape, visible, product[r][c], value_slope[r][c], row_lse[r], row_delta[r], bit, &pf, &ds);
                score_slope[i * (GT_NARROW + 1) + j] = ds;
            }
        }
        GT_SYNC();
        for (int j = 0; j < GT_NARROW; j++) {
            for (int s = 0; s < GT_SLICES; s++) {
                const float right = k[j * GT_PITCH + x + 8 * s];
                for (int r = 0; r < GT_WIDE_EACH; r++)
                    dq[r][s] = gt_fma(score_slope[(y * GT_WIDE_EACH + r) * (GT_NARROW + 1) + j], right, dq[r][s]);
            }
        }
        GT_SYNC();
    }
    for (int r = 0; r < GT_WIDE_EACH; r++) {
        for (int s = 0; s < GT_SLICES; s++) {
            const int i = y * GT_WIDE_EACH + r, d = x + 8 * s;
            if (i < rows && d < size)
                GT_STORE(dqkv, q_first + i * shape.row + d, dq[r][s] * scale);
        }
    }
}
