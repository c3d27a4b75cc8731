/* blend: y = alpha x + beta z.
 *
 * One work-item per element; each product and the sum are rounded once.
 */
__kernel void gt_blend(GT_TENSOR(x), GT_TENSOR(z), GT_TENSOR(y), float alpha, float beta, long count)
{
    const long i = (long)get_global_id(0);
    if (i < count)
        GT_STORE(y, i, alpha * GT_LOAD(x, i) + beta * GT_LOAD(z, i));
}
