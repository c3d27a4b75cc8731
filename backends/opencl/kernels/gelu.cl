/* gelu: x P(X <= x) by erf, or its tanh form; swiglu: a s(a) b with the logistic function s, or
 * gelu(a) b.  The dx of gelu may be its dy.
 */
#include "backends/gelu.h"

__kernel void gt_gelu_forward(GT_TENSOR(x), GT_TENSOR(y), int kind, long count)
{
    GT_ITEM((long)get_global_id(0), count);
    GT_LOAD_EACH(v, x, begin);
    GT_FOR_EACH(e)
        v[e] = gelu(v[e], kind);
    GT_STORE_EACH(y, begin, v);
}

__kernel void gt_gelu_backward(GT_TENSOR(dy), GT_TENSOR(x), GT_TENSOR(dx), int kind, long count)
{
    GT_ITEM((long)get_global_id(0), count);
    GT_LOAD_EACH(v, x, begin);
    GT_LOAD_EACH(gradient, dy, begin);
    GT_FOR_EACH(e)
        v[e] = gradient[e] * gelu_slope(v[e], kind);
    GT_STORE_EACH(dx, begin, v);
}

/* A row of x is [a | b], each of `columns`. */
__kernel void gt_swiglu_forward(GT_TENSOR(x), GT_TENSOR(y), int gate, long columns)
{
    long n;
    GT_ITEM(gt_column((columns + GT_EACH - 1) / GT_EACH, &n), columns);
    const long at = 2 * n * columns + begin;
    GT_LOAD_EACH(a, x, at);
    GT_LOAD_EACH(b, x, at + columns);
    GT_FOR_EACH(e)
        a[e] = swiglu(a[e], b[e], gate);
    GT_STORE_EACH(y, n * columns + begin, a);
}

__kernel void gt_swiglu_backward(GT_TENSOR(dy), GT_TENSOR(x), GT_TENSOR(dx), int gate, long columns)
{
    long n;
    GT_ITEM(gt_column((columns + GT_EACH - 1) / GT_EACH, &n), columns);
    const long at = 2 * n * columns + begin;
    GT_LOAD_EACH(a, x, at);
    GT_LOAD_EACH(b, x, at + columns);
    GT_LOAD_EACH(gradient, dy, n * columns + begin);
    GT_FOR_EACH(e)
        swiglu_gradients(gradient[e], gate, &a[e], &b[e]);
    GT_STORE_EACH(dx, at, a);
    GT_STORE_EACH(dx, at + columns, b);
}
