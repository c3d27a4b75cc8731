/* rope_forward and rope_backward: rotate pairs of elements of the queries and keys.
 *
 * `in` is x or dy, and `out` is y or dx. x is present in the backward pass with gains.  If `in` is
 * absent, `out` is rotated in place, and its other elements are not touched.  With gains,
 * gt_rope_statistics computes r and mean(dz g xh) of each mean into the workspace, one group per
 * mean.  A row has `means` of them: 2, over all heads of the queries and over all of the keys; or
 * one per head; or none.  If `gated`, rows of x and dx have a gate after each head of the queries,
 * and dx accumulates.
 */
#define GT_ROPE_ANGLE(n) ((GT_SCALAR(POSITION).i + (n) % time) * turned)
/* Element i of the head at `at`, rotated back. */
#define GT_ROPE_BACK(tensor, at, i, angle)                                                      \
    ((i) >= turned ? GT_LOAD(tensor, (at) + (i))                                                \
                   : GT_LOAD(tensor, (at) + (i)) * GT_AT(table, (angle) + (i) % (turned / 2)) + \
                         GT_LOAD(tensor, (at) + ((i) + turned / 2) % turned) *                  \
                             GT_AT(table, (angle) + turned / 2 + (i) % (turned / 2)) *          \
                             ((i) < turned / 2 ? 1.0f : -1.0f))

#define GT_GAIN(i) (GT_LOAD(gain, i) + gain_offset)

/* Returns the first element of a head of row n in x and dx; GT_ROPE_PLAIN does so in y and dy. */
static long gt_rope_wide(long n, long head, long heads, long kv_heads, long size, int gated)
{
    return gated ? (n * (2 * heads + 2 * kv_heads) + head + min(head, heads)) * size
                 : (n * (heads + 2 * kv_heads) + head) * size;
}
#define GT_ROPE_WIDE(n, head) gt_rope_wide(n, head, heads, kv_heads, size, gated)
#define GT_ROPE_PLAIN(n, head) (((n) * (heads + 2 * kv_heads) + (head)) * size)

/* Return the index of a head's first gain, and of a head's mean. */
static long gt_rope_gain(long head, long heads, long means, long size)
{
    return (means == 2 ? head : head < heads ? 0 : 1) * size;
}

static long gt_rope_mean(long head, long heads, long means)
{
    return means != 2 ? head : head < heads ? 0 : 1;
}

GT_KERNEL(GT_GROUP)
gt_rope_statistics(GT_TENSOR(in), GT_ARRAY(const float, table), GT_SCALARS, GT_TENSOR(gain),
                   GT_TENSOR(out), GT_TENSOR(x), GT_ARRAY(float, statistics), long size,
                   long turned, long heads, long kv_heads, long means, long time, int gated,
                   float epsilon, float gain_offset)
{
    __local float scratch[GT_GROUP];
    const long mean = gt_group_index(0) % means, n = gt_group_index(0) / means,
               angle = GT_ROPE_ANGLE(n);
    const long first = means != 2 ? mean : mean * heads, count = (means != 2  ? 1
                                                                  : mean == 0 ? heads
                                                                              : kv_heads) *
                                                                 size;
    float square = 0.0f, product = 0.0f;
    for (long e = (long)get_local_id(0); e < count; e += GT_GROUP) {
        const long head = first + e / size, i = e % size, wide = GT_ROPE_WIDE(n, head),
                   at = GT_ROPE_PLAIN(n, head);
        const float value = x_dtype >= 0 ? GT_LOAD(x, wide + i) : GT_LOAD(in, wide + i);
        square = gt_fma(value, value, square);
        if (x_dtype >= 0)
            product = gt_fma(GT_ROPE_BACK(in, at, i, angle) *
                                 GT_GAIN(gt_rope_gain(head, heads, means, size) + i),
                             value, product);
    }
    const float r = 1.0f / sqrt(gt_group_sum(square, scratch) / (float)count + epsilon);
    const float sum = gt_group_sum(product, scratch);
    if (get_local_id(0) == 0) {
        GT_AT(statistics, 2 * (n * means + mean)) = r;
        GT_AT(statistics, 2 * (n * means + mean) + 1) = r * sum / (float)count;
    }
}

/* The first work-items of a row process one pair each.  The others, unless in place, process one
 * element of the values each. */
__kernel void gt_rope(GT_TENSOR(in), GT_ARRAY(const float, table), GT_SCALARS, GT_TENSOR(gain),
                      GT_TENSOR(out), GT_TENSOR(x), GT_ARRAY(const float, statistics), long size,
                      long turned, long heads, long kv_heads, long means, long time, int gated,
                      int backward, float gain_offset)
{
    const bool adds = gated && backward, in_place = in_dtype < 0;
    const long pairs = (heads + kv_heads) * (size / 2), half_turned = turned / 2,
               items = in_place ? pairs : pairs + kv_heads * size;
    long n;
    const long item = gt_column(items, &n);
    if (item >= items)
        return;
    if (item >= pairs) {
        const long value = item - pairs, head = heads + kv_heads,
                   wide = GT_ROPE_WIDE(n, head) + value, plain = GT_ROPE_PLAIN(n, head) + value,
                   to = backward ? wide : plain;
        const float same = GT_LOAD(in, backward ? plain : wide);
        GT_STORE(out, to, adds ? GT_LOAD(out, to) + same : same);
        return;
    }
    /* Pairs that rotate, then pairs of the rest of the head. */
    const long head = item / (size / 2), i = item % (size / 2);
    const bool turns = i < half_turned;
    const long begin = turns ? i : i + half_turned,
               apart = turns ? half_turned : (size - turned) / 2;
    const long wide = GT_ROPE_WIDE(n, head) + begin, plain = GT_ROPE_PLAIN(n, head) + begin,
               at = backward ? plain : wide, to = backward ? wide : plain,
               angle = GT_ROPE_ANGLE(n) + i, gains = gt_rope_gain(head, heads, means, size) + begin;
    const long mean = 2 * (n * means + gt_rope_mean(head, heads, means));
    const float cosine = turns ? GT_AT(table, angle) : 1.0f,
                sine = turns ? GT_AT(table, angle + half_turned) : 0.0f;
    if (in_place && !turns)
        return;
    float a = in_place ? GT_LOAD(out, at) : GT_LOAD(in, at),
          b = in_place ? GT_LOAD(out, at + apart) : GT_LOAD(in, at + apart);
    if (backward && turns) {
        const float back = a * cosine + b * sine;
        b = b * cosine - a * sine;
        a = back;
    }
    if (means > 0) {
        const float r = GT_AT(statistics, mean), product = GT_AT(statistics, mean + 1);
        const float low = GT_GAIN(gains), high = GT_GAIN(gains + apart);
        a = backward ? r * (a * low - GT_LOAD(x, wide) * r * product) : a * r * low;
        b = backward ? r * (b * high - GT_LOAD(x, wide + apart) * r * product) : b * r * high;
    }
    const float first = backward || !turns ? a : a * cosine - b * sine,
                second = backward || !turns ? b : b * cosine + a * sine;
    GT_STORE(out, to, adds ? GT_LOAD(out, to) + first : first);
    GT_STORE(out, to + apart, adds ? GT_LOAD(out, to + apart) + second : second);
}

/* statistics[first + part, c]: the contribution of the part's rows to dgain[c]. */
__kernel void gt_rope_gain_partial(GT_TENSOR(dy), GT_ARRAY(const float, table), GT_SCALARS,
                                   GT_TENSOR(x), GT_ARRAY(float, statistics), long size,
                                   long turned, long heads, long kv_heads, long means, long time,
                                   int gated, long rows, long part_rows, long gains)
{
    long part;
    const long c = gt_column(gains, &part);
    if (c >= gains)
        return;
    const long own = c / size, i = c % size, row_end = min((part + 1) * part_rows, rows);
    const long begin = means == 2 ? own : own * heads;
    const long end = means == 2 ? own + 1 : own == 0 ? heads : heads + kv_heads;
    float sum = 0.0f;
    for (long n = part * part_rows; n < row_end; n++) {
        const long angle = GT_ROPE_ANGLE(n);
        for (long head = begin; head < end; head++) {
            const long at = GT_ROPE_PLAIN(n, head), wide = GT_ROPE_WIDE(n, head);
            const float r = GT_AT(statistics, 2 * (n * means + gt_rope_mean(head, heads, means)));
            sum = gt_fma(GT_ROPE_BACK(dy, at, i, angle), GT_LOAD(x, wide + i) * r, sum);
        }
    }
    GT_AT(statistics, 2 * rows * means + part * gains + c) = sum;
}
