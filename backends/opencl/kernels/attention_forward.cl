/* attention_forward and attention_cached: online softmax over tiles of keys, GT_QUERIES queries of
 * one head per group.
 *
 * A group is 8 x 8 work-items.  For each tile of keys, it computes scores into local memory
 * (GT_EACH queries by GT_KEYS / 8 keys per work-item).  GT_PARTS work-items per row update the
 * row's maximum and sum, and turn scores into weights. Weights times values are added to results in
 * registers (GT_EACH queries by GT_SLICES columns per work-item).  Tiles beyond the diagonal, and
 * before the first query's document or window, are skipped, and nothing of size T x T exists.  Keys
 * and values come from rows of qkv or from the cache: either is a tensor, two offsets and two
 * strides; key j is row j % ring of a sample, and no tile wraps.  Dropout applies to the weights
 * that multiply values, not to their sum.
 */
#if GT_SLICES > 16
#define GT_QUERIES 16
#define GT_KEYS 8
#elif GT_SLICES > 8
#define GT_QUERIES 32
#define GT_KEYS 16
#else
#define GT_QUERIES 32
#define GT_KEYS 32
#endif
#define GT_EACH (GT_QUERIES / 8)
#define GT_PARTS (GT_ITEMS / GT_QUERIES) /* work-items of a row of scores */
#define GT_PART_KEYS (GT_KEYS / GT_PARTS)
#define GT_KEYS_EACH (GT_KEYS / 8)
#define GT_SCORE_PITCH (GT_KEYS + 1)

static float gt_parts_sum(__local const float *part, int row)
{
    float sum = part[GT_PARTS * row];
    for (int p = 1; p < GT_PARTS; p++)
        sum += part[GT_PARTS * row + p];
    return sum;
}

GT_KERNEL(GT_ITEMS)
gt_attention_forward(GT_TENSOR(kv), GT_TENSOR(q), GT_SCALARS, GT_TENSOR(y), GT_ARRAY(float, lse),
                     GT_ARRAY(const int, begin), int cached, int documents, int window, int ring,
                     int time, int heads, int heads_per_kv, int size, long q_row, long kv_row,
                     long kv_sample, long k_first, long v_first, float scale, int site,
                     uint threshold, float kept_scale)
{
    __local float queries[GT_QUERIES * GT_PITCH], tile[GT_KEYS * GT_PITCH],
        score[GT_QUERIES * GT_SCORE_PITCH];
    __local float part[GT_ITEMS], shrink[GT_QUERIES];
    __local uint kept[GT_QUERIES * GT_KEYS / 8];
    const int item = (int)get_local_id(0), x = item % 8,
              above = item / 8 * GT_EACH; /* first of its rows */
    const int row = item / GT_PARTS,
              part_first = item % GT_PARTS * GT_PART_KEYS; /* for the softmax */
    const int bands = (time + GT_QUERIES - 1) / GT_QUERIES;
    const long index = gt_group_index(0), sample = index / ((long)bands * heads);
    const int head = (int)(index / bands % heads),
              first = (bands - 1 - (int)(index % bands)) * GT_QUERIES;
    const int rows = min(time - first, GT_QUERIES),
              position = cached ? (int)GT_SCALAR(POSITION).i : 0;
    const int end = position + first + rows;
    const long q_first = (sample * time + first) * q_row + (long)head * size;
    const long kv_first = sample * kv_sample + (long)(head / heads_per_kv) * size;
    const struct dropout_mask mask = dropout_mask_of(
        &GT_AT(scalars, 0), (uint)site + ((uint)head << 16), (uint)sample, threshold);
    float result[GT_EACH][GT_SLICES], largest = -INFINITY, sum = 0.0f;
    const int document = documents ? GT_AT(begin, sample * time + first) : 0;
    const int start = gt_begin(document, window, position + first) / GT_KEYS * GT_KEYS;
    int begins[GT_EACH]; /* the first key that each of the rows sees */
    for (int r = 0; r < GT_EACH; r++) {
        begins[r] = gt_begin(
            documents && above + r < rows ? GT_AT(begin, sample * time + first + above + r) : 0,
            window, position + first + above + r);
        for (int s = 0; s < GT_SLICES; s++)
            result[r][s] = 0.0f;
    }
    gt_rows_load(queries, GT_QUERIES, q, q_at + (ulong)q_first, q_dtype, q_row, rows, size);
    for (int key = start; key < end; key += GT_KEYS) {
        const int keys = min(end - key, GT_KEYS);
        gt_rows_load(tile, GT_KEYS, kv, kv_at + (ulong)(kv_first + k_first + key % ring * kv_row),
                     kv_dtype, kv_row, keys, size);
        gt_kept_fill(kept, GT_QUERIES, GT_KEYS, time, first, key, &mask);
        GT_SYNC();
        float product[GT_EACH][GT_KEYS_EACH];
        for (int r = 0; r < GT_EACH; r++) {
            for (int c = 0; c < GT_KEYS_EACH; c++)
                product[r][c] = 0.0f;
        }
        for (int d = 0; d < size; d++) {
            float left[GT_EACH];
            for (int r = 0; r < GT_EACH; r++)
                left[r] = queries[(above + r) * GT_PITCH + d];
            for (int c = 0; c < GT_KEYS_EACH; c++) {
                const float right = tile[(x + 8 * c) * GT_PITCH + d];
                for (int r = 0; r < GT_EACH; r++)
                    product[r][c] = gt_fma(left[r], right, product[r][c]);
            }
        }
        for (int r = 0; r < GT_EACH; r++) {
            for (int c = 0; c < GT_KEYS_EACH; c++) {
                const int at = key + x + 8 * c;
                const bool visible = at >= begins[r] && at <= position + first + above + r;
                score[(above + r) * GT_SCORE_PITCH + x + 8 * c] =
                    visible ? product[r][c] * scale : -INFINITY;
            }
        }
        GT_SYNC();
        __local float *weight = score + row * GT_SCORE_PITCH + part_first;
        float before = largest, part_largest = -INFINITY;
        for (int j = 0; j < GT_PART_KEYS; j++)
            part_largest = fmax(part_largest, weight[j]);
        part[item] = part_largest;
        gt_rows_load(tile, GT_KEYS, kv, kv_at + (ulong)(kv_first + v_first + key % ring * kv_row),
                     kv_dtype, kv_row, keys, size);
        GT_SYNC();
        for (int p = 0; p < GT_PARTS; p++)
            largest = fmax(largest, part[GT_PARTS * row + p]);
        /* With documents or a window a row may have seen no key so far. */
        const float zero = largest == -INFINITY ? 0.0f : largest, factor = exp(before - zero);
        sum *= factor;
        for (int j = 0; j < GT_PART_KEYS; j++) {
            const float p = exp(weight[j] - zero);
            const int e = part_first + j;
            const bool dropped =
                threshold != 0 && (kept[row * (GT_KEYS / 8) + e / 8] >> (e % 8) & 1u) == 0;
            sum += p;
            weight[j] = dropped ? 0.0f : p * kept_scale;
        }
        if (item % GT_PARTS == 0)
            shrink[row] = factor;
        GT_SYNC();
        for (int r = 0; r < GT_EACH; r++) {
            for (int s = 0; s < GT_SLICES; s++)
                result[r][s] *= shrink[above + r];
        }
        for (int j = 0; j < GT_KEYS; j++) {
            float left[GT_EACH];
            for (int r = 0; r < GT_EACH; r++)
                left[r] = score[(above + r) * GT_SCORE_PITCH + j];
            for (int s = 0; s < GT_SLICES; s++) {
                const float right = tile[j * GT_PITCH + x + 8 * s];
                for (int r = 0; r < GT_EACH; r++)
                    result[r][s] = gt_fma(left[r], right, result[r][s]);
            }
        }
        GT_SYNC();
    }
    part[item] = sum;
    GT_SYNC();
    if (!cached && item % GT_PARTS == 0 && row < rows)
        GT_AT(lse, (sample * heads + head) * time + first + row) =
            largest + log(gt_parts_sum(part, row));
    for (int r = 0; r < GT_EACH; r++) {
        const float inverse = 1.0f / gt_parts_sum(part, above + r);
        const long to = ((sample * time + first + above + r) * heads + head) * (long)size;
        for (int s = 0; s < GT_SLICES; s++) {
            if (above + r < rows && x + 8 * s < size)
                GT_STORE(y, to + x + 8 * s, result[r][s] * inverse);
        }
    }
}

/* Copies the new keys and values to the cache; one work-item per element of a row. */
__kernel void gt_attention_append(GT_TENSOR(qkv), GT_SCALARS, GT_TENSOR(cache), int time,
                                  long q_row, long k_first, long width, long capacity, long samples)
{
    long n;
    const long e = gt_column(2 * width, &n);
    if (e >= 2 * width)
        return;
    const long part = e / width, sample = n / time,
               place = (GT_SCALAR(POSITION).i + n % time) % capacity;
    const long to = ((part * samples + sample) * capacity + place) * width + e % width;
    GT_STORE(cache, to, GT_LOAD(qkv, n * q_row + k_first + e));
}

/* For attention_backward: delta[sample, head, t] = the sum over d of dy y; one work-item per head
 * of a row. */
__kernel void gt_attention_delta(GT_TENSOR(dy), GT_TENSOR(y), GT_ARRAY(float, delta), int time,
                                 int heads, int size)
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
