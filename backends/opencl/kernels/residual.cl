/* residual: r = x + y.
 *
 * One work-item per element; r may be x or y.
 */
__kernel void gt_residual(GT_TENSOR(x), GT_TENSOR(y), GT_TENSOR(r), long count)
{
    const long i = (long)get_global_id(0);
    if (i < count)
        GT_STORE(r, i, GT_LOAD(x, i) + GT_LOAD(y, i));
}
