/* embed_forward and embed_backward: rows of two tables, gathered and added; and their gradients.
 *
 * There is one work-item per channel of a row, of a group of equal ids, or of a position.  The
 * backward pass reads rows grouped by id, as the host sorted them: one work-item writes each
 * element of dwte, in the order of the list.
 */
__kernel void gt_embed_forward(GT_ARRAY(const int, ids), GT_TENSOR(wte), GT_TENSOR(wpe), GT_SCALARS,
                               GT_TENSOR(y), GT_ARRAY(const int, first), int documents, int time,
                               long channels)
{
    long n;
    const long c = gt_column(channels, &n);
    if (c >= channels)
        return;
    const long token = GT_AT(ids, n), place = GT_SCALAR(POSITION).i + (uint)n % (uint)time -
                                              (documents ? GT_AT(first, n) : 0);
    const float x = GT_LOAD(wte, token * channels + c);
    GT_STORE(y, n * channels + c, wpe_dtype >= 0 ? x + GT_LOAD(wpe, place * channels + c) : x);
}

/* dwte[id] += the sum of dy's rows with this id.  There are starts[0] distinct ids; the launch may
 * cover more. */
__kernel void gt_embed_backward_tokens(GT_TENSOR(dy), GT_ARRAY(const int, ids),
                                       GT_ARRAY(const int, order), GT_ARRAY(const int, starts),
                                       GT_TENSOR(dwte), long channels)
{
    long k;
    const long c = gt_column(channels, &k);
    if (c >= channels || k >= GT_AT(starts, 0))
        return;
    const int begin = GT_AT(starts, 1 + k), end = GT_AT(starts, 2 + k);
    float sum = 0.0f;
    for (int i = begin; i < end; i++)
        sum += GT_LOAD(dy, (long)GT_AT(order, i) * channels + c);
    const long to = (long)GT_AT(ids, GT_AT(order, begin)) * channels + c;
    GT_STORE(dwte, to, GT_LOAD(dwte, to) + sum);
}

/* dwpe[t] (+)= the sum over samples of dy[b,t], or, with documents, of all rows at position t of
 * their documents.  Without accumulation, positions from `time` on become 0. */
__kernel void gt_embed_backward_positions(GT_TENSOR(dy), GT_TENSOR(dwpe),
                                          GT_ARRAY(const int, first), int documents, int time,
                                          int accumulate, long samples, long channels)
{
    long t;
    const long c = gt_column(channels, &t);
    if (c >= channels || (t >= time && accumulate))
        return;
    float sum = 0.0f;
    for (long b = 0; b < samples && t < time && !documents; b++)
        sum += GT_LOAD(dy, (b * time + t) * channels + c);
    for (long n = t; n < samples * time && t < time && documents; n++)
        if ((uint)n % (uint)time - GT_AT(first, n) == t)
            sum += GT_LOAD(dy, n * channels + c);
    const long to = t * channels + c;
    GT_STORE(dwpe, to, accumulate ? GT_LOAD(dwpe, to) + sum : sum);
}
