/* The blend of two tensors.  The op is exact. */
#include <math.h>

#include "tests/ops/op_test.h"

static void exact_blend(const struct op_call *call, double *const *value)
{
    float alpha = call->attrs.alpha, beta = call->attrs.beta;
    for (int64_t i = 0; i < op_elements(call, BLEND_Y); i++) {
        float x = (float)value[BLEND_X][i], z = (float)value[BLEND_Z][i];
        float y = alpha * x + beta * z;
        value[BLEND_Y][i] = (double)exact_rounded(call->operand[BLEND_Y].dtype, y);
    }
}

static void make_blend(struct maker *maker)
{
    int64_t rows = case_size(maker, 129), columns = case_any_size(maker, 129);
    case_attrs(maker)->alpha = maker->index % 2 != 0 ? 3.4445f : -4.775f;
    case_attrs(maker)->beta = maker->index % 3 != 0 ? 2.0315f : 1.0f;
    case_tensor(maker, BLEND_X, maker->dtype, rows, columns);
    case_tensor(maker, BLEND_Z, maker->dtype, rows, columns);
}

const struct op_test test_blend = {
    .shape = make_blend,
    .bench = bench_wide,
    .exact = exact_blend,
};
