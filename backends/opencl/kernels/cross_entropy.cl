/* cross_entropy: losses and, in place, the gradient of the logits.
 *
 * One group per row.  Each work-item keeps the maximum of its logits and the sum of exponentials
 * relative to it; the group rescales these to one maximum.  Then the row is read again, from the
 * cache if it fits, and overwritten by its gradient.  Columns from `vocab` on do not count.  A row
 * without a target takes the same path, so that every work-item reaches every barrier.
 */
GT_KERNEL(GT_GROUP)
gt_cross_entropy(GT_ARRAY(const int, targets), GT_SCALARS, GT_TENSOR(logits),
                 GT_ARRAY(float, losses), int gradient, long vocab, long columns)
{
    __local float scratch[GT_GROUP];
    const long n = gt_group_index(0), first = n * columns, item = GT_EACH * (long)get_local_id(0);
    const int wanted = GT_AT(targets, n), target = max(wanted, 0);
    const bool ignored = wanted < 0; /* in 32 bits: with 64, rusticl 22.3 ignored no row */
    const float scale = GT_SCALAR(LOSS_GRADIENT).f;
    float largest = -FLT_MAX, sum = 0.0f;
    for (long begin = item; begin < vocab; begin += GT_EACH * GT_GROUP) {
        const int width = (int)min(vocab - begin, (long)GT_EACH);
        const float before = largest;
        GT_LOAD_EACH(z, logits, first + begin);
        GT_FOR_EACH(e)
            largest = e < width && z[e] > largest ? z[e] : largest;
        sum *= exp(before - largest);
        GT_FOR_EACH(e)
            sum += e < width ? exp(z[e] - largest) : 0.0f;
    }
    const float row_largest = gt_group_max(largest, scratch);
    const float row_sum = gt_group_sum(sum * exp(largest - row_largest), scratch);
    const float correct = GT_LOAD(logits, first + target), factor = 1.0f / row_sum;
    if (get_local_id(0) == 0)
        GT_AT(losses, n) = ignored ? 0.0f : log(row_sum) + (row_largest - correct);
    barrier(CLK_GLOBAL_MEM_FENCE); /* until all work-items have read the target's logit */
    for (long begin = item; begin < columns && gradient; begin += GT_EACH * GT_GROUP) {
        const int width = (int)min(columns - begin, (long)GT_EACH);
        GT_LOAD_EACH(z, logits, first + begin);
        GT_FOR_EACH(e) {
            const float share = exp(z[e] - row_largest) * factor;
            const float slope = (begin + e == target ? share - 1.0f : share) * scale;
            z[e] = begin + e < vocab && !ignored ? slope : 0.0f;
        }
        GT_STORE_EACH(logits, first + begin, z);
    }
}
