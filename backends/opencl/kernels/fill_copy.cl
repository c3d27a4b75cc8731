/* fill: y = value; copy: y = x, or y += x, from any float dtype to any.
 *
 * One work-item per element.  Between equal dtypes, y = x copies the bits.
 */
__kernel void gt_fill(GT_TENSOR(y), float value, long count)
{
    const long i = (long)get_global_id(0);
    if (i < count)
        GT_STORE(y, i, value);
}

__kernel void gt_copy(GT_TENSOR(x), GT_TENSOR(y), int accumulate, long count)
{
    const long i = (long)get_global_id(0);
    if (i >= count)
        return;
    if (accumulate)
        GT_STORE(y, i, GT_LOAD(y, i) + GT_LOAD(x, i));
    else if (x_dtype != y_dtype)
        GT_STORE(y, i, GT_LOAD(x, i));
    else if (x_dtype == GT_F32)
        ((__global uint *)y)[y_at + (ulong)i] = ((__global const uint *)x)[x_at + (ulong)i];
    else
        ((__global ushort *)y)[y_at + (ulong)i] = ((__global const ushort *)x)[x_at + (ulong)i];
}
