/* cross_entropy: losses = lse(logits) - logits[target], over the first `vocab` columns of each row.
 *
 * A row with target < 0 has loss 0 and gradient 0.  With attrs.gradient the logits become
 * (softmax - onehot) scalars.LOSS_GRADIENT in place, and columns beyond vocab become 0.  loss_sum
 * adds the losses to scalars.LOSS_SUM, and SCALAR_LOSS_GRADIENT contains the cotangent of that sum.
 */
#include "model/autodiff.h"
#include "ops/infer.h"

static bool cross_entropy_check(const struct op_call *call, struct infer_sizes *sizes)
{
    const int64_t width = call->operand[CROSS_ENTROPY_LOGITS].dims[1];
    (void)sizes;
    return infer_expect(call->attrs.vocab >= 1 && call->attrs.vocab <= width, call,
                        "vocab is %" PRId32 ", expected 1 to the %" PRId64 " columns of logits",
                        call->attrs.vocab, width);
}

/* Maximum, subtraction, exp, sum; the gradient adds an exp, a product and a scale. */
static double cross_entropy_flops(const struct op_call *call)
{
    double rows = cost_elements(call, CROSS_ENTROPY_TARGETS);
    return (call->attrs.gradient ? 7.0 : 4.0) * rows * (double)call->attrs.vocab;
}

static enum gt_status cross_entropy_differentiate(struct autodiff *ad, const struct op *op,
                                                  int32_t gradient)
{
    (void)gradient;
    assert(op->attrs.gradient);
    return autodiff_share(ad, op->operand[CROSS_ENTROPY_LOGITS], op->operand[CROSS_ENTROPY_LOGITS]);
}

const struct op_declaration op_cross_entropy = {
    OP_NAMED(cross_entropy, CROSS_ENTROPY),
    .operand = {[CROSS_ENTROPY_TARGETS] = {OPERAND_IN, "N", DTYPES_I32},
                [CROSS_ENTROPY_SCALARS] = SCALARS(OPERAND_IN),
                [CROSS_ENTROPY_LOGITS] = {OPERAND_INOUT | OPERAND_WRITTEN_FOR_GRADIENT, "NV"},
                [CROSS_ENTROPY_LOSSES] = {OPERAND_OUT, "N", DTYPES_F32}},
    .check = cross_entropy_check,
    .flops = cross_entropy_flops,
    .makes_gradient = true,
    .differentiate = cross_entropy_differentiate,
};

static size_t loss_sum_workspace_cap(const struct op_call *call)
{
    (void)call;
    return OP_PARTIAL_ROWS * sizeof(float);
}

const struct op_declaration op_loss_sum = {
    OP_NAMED(loss_sum, LOSS_SUM),
    .operand = {[LOSS_SUM_LOSSES] = {OPERAND_IN, "?", DTYPES_F32},
                [LOSS_SUM_SCALARS] = SCALARS(OPERAND_INOUT)},
    .cost = {1.0, LOSS_SUM_LOSSES},
    .workspace_cap = loss_sum_workspace_cap,
};
