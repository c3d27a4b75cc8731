/* adamw: one pass over gradient, parameter and both moments; memory-bound.
 *
 * One work-item per element.  Nothing is updated if clip_factor found an infinity.  Moments and parameter are rounded
 * once, from the fp32 values of this step.  With a master, the update applies to the master, and the parameter is its
 * rounding.
 */
__kernel void gt_adamw(GT_TENSOR(grad), GT_ARRAY(const uint, scalars), GT_ARRAY(const float, corrections),
                       GT_TENSOR(param), GT_TENSOR(master), GT_TENSOR(first), GT_TENSOR(second), float beta1,
                       float rest1, float beta2, float rest2, float epsilon, float weight_decay, float alpha,
                       long correction_rows, long count)
{
    const long i = (long)get_global_id(0);
    if (i >= count || GT_AT(scalars, GT_FOUND_INF) != 0)
        return;
    const long row = clamp((long)(int)GT_AT(scalars, GT_ADAM_STEP), 1L, correction_rows) - 1;
    const float correction1 = GT_AT(corrections, 2 * row), correction2 = GT_AT(corrections, 2 * row + 1);
    const float g = GT_LOAD(grad, i) * GT_SCALAR_FLOAT(scalars, GT_CLIP);
    const float m = beta1 * GT_LOAD(first, i) + rest1 * g;
    const float v = beta2 * GT_LOAD(second, i) + rest2 * g * g;
    const float p = master_dtype >= 0 ? GT_LOAD(master, i) : GT_LOAD(param, i);
    const float move = (m / correction1) / (sqrt(v / correction2) + epsilon) + weight_decay * p;
    const float updated = p - GT_SCALAR_FLOAT(scalars, GT_LEARNING_RATE) * alpha * move;
    GT_STORE(first, i, m);
    GT_STORE(second, i, v);
    GT_STORE(param, i, updated);
    if (master_dtype >= 0)
        GT_STORE(master, i, updated);
}
