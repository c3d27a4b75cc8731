/* gemm: d[M,N] (+)= op(a)[M,K] op(b)[K,N] + bias[N].
 *
 * a is [M,K], or [K,M] with transpose_a; b is [K,N], or [N,K] with transpose_b.  The bias is added to every row; it
 * must be absent when the op accumulates.  bias_backward sums the rows of dy.
 */
#include "ops/op.h"

#include <assert.h>

#include "base/log.h"
#include "model/autodiff.h"
#include "ops/infer.h"

static bool gemm_infer(struct op_call *call)
{
    const struct op_attrs *attrs = &call->attrs;
    if (!infer_check(call, GEMM_A, DTYPES_FLOAT, SHAPE2(ANY, ANY)))
        return false;
    int64_t m = attrs->transpose_a ? infer_columns(call, GEMM_A) : infer_rows(call, GEMM_A);
    int64_t k = attrs->transpose_a ? infer_rows(call, GEMM_A) : infer_columns(call, GEMM_A);
    struct infer_shape b = attrs->transpose_b ? SHAPE2(ANY, k) : SHAPE2(k, ANY);
    if (!infer_check(call, GEMM_B, DTYPES_FLOAT, b) || !infer_same_dtype(call, GEMM_A, GEMM_B))
        return false;
    int64_t n = attrs->transpose_b ? infer_rows(call, GEMM_B) : infer_columns(call, GEMM_B);
    if (!infer_check(call, GEMM_BIAS, DTYPES_FLOAT, SHAPE1(n)))
        return false;
    if (call->operand[GEMM_BIAS].present && attrs->accumulate != 0) {
        log_error("%s: operand bias is present, expected none together with accumulation",
                  op_declaration(call->kind)->name);
        return false;
    }
    return infer_fill(call, GEMM_D, call->operand[GEMM_A].dtype, DTYPES_FLOAT, SHAPE2(m, n));
}

static double gemm_flops(const struct op_call *call)
{
    const struct operand *a = &call->operand[GEMM_A];
    double k = (double)(call->attrs.transpose_a ? a->dims[0] : a->dims[1]);
    double bias = call->operand[GEMM_BIAS].present ? 1.0 : 0.0;
    return (2.0 * k + bias) * cost_elements(call, GEMM_D);
}

/* d = a b: da = dd b', db = a' dd.  d = a b': da = dd b, db = dd' a. */
static enum gt_status gemm_differentiate(struct autodiff *ad, const struct op *op)
{
    int32_t a = op->operand[GEMM_A], b = op->operand[GEMM_B], bias = op->operand[GEMM_BIAS];
    int32_t dd = autodiff_gradient(ad, op->operand[GEMM_D]);
    if (dd == TENSOR_NONE)
        return GT_OK;
    assert(!op->attrs.transpose_a && !op->attrs.accumulate);
    if (bias != TENSOR_NONE) {
        struct op_attrs attrs = {0};
        int32_t operands[BIAS_BACKWARD_OPERANDS] = {[BIAS_BACKWARD_DY] = dd};
        TRY(autodiff_target(ad, bias, BIAS_BACKWARD_DBIAS, operands, &attrs));
        TRY(autodiff_emit(ad, op, OP_BIAS_BACKWARD, &attrs, operands));
    }
    int32_t a_value = autodiff_saved(ad, a), b_value = autodiff_saved(ad, b);
    struct op_attrs weight = {.transpose_a = true};
    int32_t weight_operands[GEMM_OPERANDS] = {[GEMM_A] = op->attrs.transpose_b ? dd : a_value,
                                              [GEMM_B] = op->attrs.transpose_b ? a_value : dd,
                                              [GEMM_BIAS] = TENSOR_NONE};
    TRY(autodiff_target(ad, b, GEMM_D, weight_operands, &weight));
    TRY(autodiff_emit(ad, op, OP_GEMM, &weight, weight_operands));
    struct op_attrs input = {.transpose_b = !op->attrs.transpose_b};
    int32_t input_operands[GEMM_OPERANDS] = {[GEMM_A] = dd, [GEMM_B] = b_value, [GEMM_BIAS] = TENSOR_NONE};
    TRY(autodiff_target(ad, a, GEMM_D, input_operands, &input));
    return autodiff_emit(ad, op, OP_GEMM, &input, input_operands);
}

/* A split of K needs an fp32 copy of the result per part.  The cap allows one part for each 256 of K, plus one. */
static size_t gemm_workspace_cap(const struct op_call *call)
{
    const struct operand *a = &call->operand[GEMM_A];
    size_t k = (size_t)(call->attrs.transpose_a ? a->dims[0] : a->dims[1]);
    size_t result = (size_t)operand_elements(&call->operand[GEMM_D]) * sizeof(float);
    size_t parts = k / 256 + 1;
    return result > OP_GEMM_WORKSPACE_BYTES / parts ? OP_GEMM_WORKSPACE_BYTES : result * parts;
}

const struct op_declaration op_gemm = {
    .name = "gemm",
    .text = "d (+)= op(a) op(b) + bias",
    .operands = GEMM_OPERANDS,
    .operand = {[GEMM_A] = {"a", OPERAND_IN | OPERAND_SAVED},
                [GEMM_B] = {"b", OPERAND_IN | OPERAND_SAVED},
                [GEMM_BIAS] = {"bias", OPERAND_IN | OPERAND_OPTIONAL},
                [GEMM_D] = {"d", OPERAND_OUT | OPERAND_ACCUMULATES}},
    .multiplies = true,
    .infer = gemm_infer,
    .flops = gemm_flops,
    .workspace_cap = gemm_workspace_cap,
    .differentiate = gemm_differentiate,
};

static bool bias_backward_infer(struct op_call *call)
{
    if (!infer_check(call, BIAS_BACKWARD_DY, DTYPES_FLOAT, SHAPE2(ANY, ANY)))
        return false;
    enum dtype dtype = call->operand[BIAS_BACKWARD_DY].dtype;
    return infer_fill(call, BIAS_BACKWARD_DBIAS, dtype, DTYPES_FLOAT, SHAPE1(infer_columns(call, BIAS_BACKWARD_DY)));
}

static double bias_backward_flops(const struct op_call *call)
{
    return cost_elements(call, BIAS_BACKWARD_DY);
}

static size_t bias_backward_workspace_cap(const struct op_call *call)
{
    return (size_t)OP_PARTIAL_ROWS * (size_t)operand_elements(&call->operand[BIAS_BACKWARD_DBIAS]) * sizeof(float);
}

const struct op_declaration op_bias_backward = {
    .name = "bias_backward",
    .text = "dbias (+)= sum of the rows of dy",
    .operands = BIAS_BACKWARD_OPERANDS,
    .operand =
        {[BIAS_BACKWARD_DY] = {"dy", OPERAND_IN}, [BIAS_BACKWARD_DBIAS] = {"dbias", OPERAND_OUT | OPERAND_ACCUMULATES}},
    .infer = bias_backward_infer,
    .flops = bias_backward_flops,
    .workspace_cap = bias_backward_workspace_cap,
};
