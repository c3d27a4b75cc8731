/* cross_entropy: losses and, in place, the gradient of the logits.
 *
 * One group per row.  Each work-item keeps the maximum of its logits and the sum of exponentials relative to it; the
 * group rescales these to one maximum.  Then the row is read again, from the cache if it fits, and overwritten by its
 * gradient.  Columns from `vocab` on are never read.  A row without a target takes the same path, so that every
 * work-item reaches every barrier.
 */
GT_KERNEL(GT_GROUP)
gt_cross_entropy(GT_ARRAY(const int, targets), GT_ARRAY(const uint, scalars), GT_TENSOR(logits),
                 GT_ARRAY(float, losses), int gradient, long vocab, long width)
{
    __local float scratch[GT_GROUP];
    const long n = gt_group_index(0), first = n * width;
    const int wanted = GT_AT(targets, n), target = max(wanted, 0);
    const bool ignored = wanted < 0; /* in 32 bits: with 64, rusticl 22.3 ignored no row */
    const float scale = GT_SCALAR_FLOAT(scalars, GT_LOSS_GRADIENT);
    float largest = -FLT_MAX, sum = 0.0f;
    for (long c = (long)get_local_id(0); c < vocab; c += GT_GROUP) {
        const float z = GT_LOAD(logits, first + c);
        if (z > largest) {
            sum *= exp(largest - z);
            largest = z;
        }
        sum += exp(z - largest);
    }
    const float row_largest = gt_group_max(largest, scratch);
    const float row_sum = gt_group_sum(sum * exp(largest - row_largest), scratch);
    const float correct = GT_LOAD(logits, first + target), factor = 1.0f / row_sum;
    if (get_local_id(0) == 0)
        GT_AT(losses, n) = ignored ? 0.0f : log(row_sum) + (row_largest - correct);
    barrier(CLK_GLOBAL_MEM_FENCE); /* until all work-items have read the target's logit */
    for (long c = (long)get_local_id(0); c < width && gradient; c += GT_GROUP) {
        float slope = 0.0f;
        if (c < vocab && !ignored) {
            const float share = exp(GT_LOAD(logits, first + c) - row_largest) * factor;
            slope = (c == target ? share - 1.0f : share) * scale;
        }
        GT_STORE(logits, first + c, slope);
    }
}
