/* dropout: y = x times a mask that is a pure function of seed, step, sample, site and element (ops/op.h).
 *
 * One work-item per eight elements that share a Philox block; samples are rows.  y may be x.  The op is also its own
 * backward.
 */
__kernel void gt_dropout(GT_TENSOR(x), GT_ARRAY(const uint, scalars), GT_TENSOR(y), int site, uint threshold,
                         float scale, long sample_elements)
{
    long sample;
    const long group = gt_column((sample_elements + 7) / 8, &sample), first = 8 * group;
    if (first >= sample_elements)
        return;
    const uint4 counter =
        (uint4)((uint)group, (uint)site, GT_AT(scalars, GT_SAMPLE_BASE) + (uint)sample, GT_AT(scalars, GT_STEP));
    const uint kept = gt_dropout_kept(GT_AT(scalars, GT_SEED_LO), GT_AT(scalars, GT_SEED_HI), counter, threshold);
    const int width = (int)min(sample_elements - first, 8L);
    const long at = sample * sample_elements + first;
    for (int e = 0; e < width; e++)
        GT_STORE(y, at + e, (kept >> e & 1u) != 0 ? GT_LOAD(x, at + e) * scale : 0.0f);
}
