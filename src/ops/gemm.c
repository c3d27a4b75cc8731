/* gemm: d[M,N] (+)= op(a)[M,K] op(b)[K,N] + bias[N].
 *
 * a is [M,K], or [K,M] with transpose_a; b is [K,N], or [N,K] with transpose_b.  The bias is added
 * to every row; it must be absent when the op accumulates.  bias_backward sums the rows of dy.
 */
#include "model/autodiff.h"
#include "ops/infer.h"

static bool gemm_check(const struct op_call *call, struct infer_sizes *sizes)
{
    (void)sizes;
    return infer_expect(!call->operand[GEMM_BIAS].present || call->attrs.accumulate == 0, call,
                        "operand bias is present, expected none together with accumulation");
}

static double gemm_flops(const struct op_call *call)
{
    const struct operand *a = &call->operand[GEMM_A];
    double k = (double)(call->attrs.transpose_a ? a->dims[0] : a->dims[1]);
    double bias = call->operand[GEMM_BIAS].present ? 1.0 : 0.0;
    return (2.0 * k + bias) * cost_elements(call, GEMM_D);
}

/* d = a b: da = dd b', db = a' dd.  d = a b': da = dd b, db = dd' a.  The same holds if it was
 * added to d. */
static enum gt_status gemm_differentiate(struct autodiff *ad, const struct op *op, int32_t dd)
{
    int32_t a = op->operand[GEMM_A], b = op->operand[GEMM_B], bias = op->operand[GEMM_BIAS];
    assert(!op->attrs.transpose_a);
    if (bias != TENSOR_NONE && autodiff_wants(ad, bias))
        TRY(autodiff_contribute(ad, op, bias, OP_BIAS_BACKWARD, BIAS_BACKWARD_DBIAS,
                                OP_ARGUMENTS(BIAS_BACKWARD, .dy = dd)));
    const int32_t a_value = autodiff_saved(ad, a), b_value = autodiff_saved(ad, b);
    const bool transposed = op->attrs.transpose_b;
    if (autodiff_wants(ad, b))
        TRY(autodiff_contribute(ad, op, b, OP_GEMM, GEMM_D,
                                OP_ARGUMENTS(GEMM, .a = transposed ? dd : a_value,
                                             .b = transposed ? a_value : dd,
                                             .attrs.transpose_a = true)));
    if (!autodiff_wants(ad, a))
        return GT_OK;
    return autodiff_contribute(
        ad, op, a, OP_GEMM, GEMM_D,
        OP_ARGUMENTS(GEMM, .a = dd, .b = b_value, .attrs.transpose_b = !transposed));
}

/* A split of K needs an fp32 copy of the result per part.  The cap allows one part for each 256 of
 * K, plus one. */
static size_t gemm_workspace_cap(const struct op_call *call)
{
    const struct operand *a = &call->operand[GEMM_A];
    size_t k = (size_t)(call->attrs.transpose_a ? a->dims[0] : a->dims[1]);
    size_t result = (size_t)operand_elements(&call->operand[GEMM_D]) * sizeof(float);
    size_t parts = k / 256 + 1;
    return result > OP_GEMM_WORKSPACE_BYTES / parts ? OP_GEMM_WORKSPACE_BYTES : result * parts;
}

const struct op_declaration op_gemm = {
    OP_NAMED(gemm, GEMM),
    .operand = {[GEMM_A] = {OPERAND_IN | OPERAND_SAVED, "MK"},
                [GEMM_B] = {OPERAND_IN | OPERAND_SAVED | OPERAND_SAME_DTYPE, "KN"},
                [GEMM_BIAS] = {OPERAND_IN | OPERAND_OPTIONAL, "N"},
                [GEMM_D] = {OPERAND_OUT | OPERAND_ACCUMULATES, "MN"}},
    .multiplies = true,
    .check = gemm_check,
    .flops = gemm_flops,
    .workspace_cap = gemm_workspace_cap,
    .differentiate = gemm_differentiate,
};

const struct op_declaration op_bias_backward = {
    OP_NAMED(bias_backward, BIAS_BACKWARD),
    .operand = {[BIAS_BACKWARD_DY] = {OPERAND_IN, "NC"},
                [BIAS_BACKWARD_DBIAS] = {OPERAND_OUT | OPERAND_ACCUMULATES, "C"}},
    .cost = {1.0, BIAS_BACKWARD_DY},
    .partials = OP_PARTIAL_ROWS,
};
