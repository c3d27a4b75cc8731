/* cross_entropy: losses = lse(logits) - logits[target], over the first `vocab` columns of each row.
 *
 * A row with target < 0 has loss 0 and gradient 0.  With attrs.gradient the logits become
 * (softmax - onehot) scalars.LOSS_GRADIENT in place, and columns beyond vocab become 0.  loss_sum adds the losses to
 * scalars.LOSS_SUM.
 */
#include "ops/op.h"

#include <assert.h>
#include <inttypes.h>

#include "base/log.h"
#include "model/autodiff.h"
#include "ops/infer.h"

static bool cross_entropy_infer(struct op_call *call)
{
    if (!infer_check(call, CROSS_ENTROPY_LOGITS, DTYPES_FLOAT, SHAPE2(ANY, ANY)))
        return false;
    int64_t rows = infer_rows(call, CROSS_ENTROPY_LOGITS), width = infer_columns(call, CROSS_ENTROPY_LOGITS);
    if (!infer_check(call, CROSS_ENTROPY_TARGETS, DTYPES_I32, SHAPE1(rows)) ||
        !infer_scalars(call, CROSS_ENTROPY_SCALARS))
        return false;
    if (call->attrs.vocab < 1 || call->attrs.vocab > width) {
        log_error("%s: vocab is %" PRId32 ", expected 1 to the %" PRId64 " columns of logits",
                  op_declaration(call->kind)->name, call->attrs.vocab, width);
        return false;
    }
    return infer_fill(call, CROSS_ENTROPY_LOSSES, DTYPE_F32, DTYPES_F32, SHAPE1(rows));
}

/* Maximum, subtraction, exp, sum; the gradient adds an exp, a product and a scale. */
static double cross_entropy_flops(const struct op_call *call)
{
    double rows = cost_elements(call, CROSS_ENTROPY_TARGETS);
    return (call->attrs.gradient ? 7.0 : 4.0) * rows * (double)call->attrs.vocab;
}

/* The forward op has overwritten the logits with their gradient. */
static enum gt_status cross_entropy_differentiate(struct autodiff *ad, const struct op *op)
{
    assert(op->attrs.gradient);
    return autodiff_share(ad, op->operand[CROSS_ENTROPY_LOGITS], op->operand[CROSS_ENTROPY_LOGITS]);
}

const struct op_declaration op_cross_entropy = {
    .name = "cross_entropy",
    .text = "losses = lse(logits) - logits[target]; logits := their gradient, in place",
    .operands = CROSS_ENTROPY_OPERANDS,
    .operand = {[CROSS_ENTROPY_TARGETS] = {"targets", OPERAND_IN},
                [CROSS_ENTROPY_SCALARS] = {"scalars", OPERAND_IN},
                [CROSS_ENTROPY_LOGITS] = {"logits", OPERAND_INOUT | OPERAND_WRITTEN_FOR_GRADIENT},
                [CROSS_ENTROPY_LOSSES] = {"losses", OPERAND_OUT}},
    .infer = cross_entropy_infer,
    .flops = cross_entropy_flops,
    .differentiate = cross_entropy_differentiate,
};

static bool loss_sum_infer(struct op_call *call)
{
    return infer_check(call, LOSS_SUM_LOSSES, DTYPES_F32, SHAPE1(ANY)) && infer_scalars(call, LOSS_SUM_SCALARS);
}

static double loss_sum_flops(const struct op_call *call)
{
    return cost_elements(call, LOSS_SUM_LOSSES);
}

/* Emits nothing: the sum is the loss itself, and SCALAR_LOSS_GRADIENT contains its cotangent. */
static enum gt_status loss_sum_differentiate(struct autodiff *ad, const struct op *op)
{
    (void)ad;
    (void)op;
    return GT_OK;
}

static size_t loss_sum_workspace_cap(const struct op_call *call)
{
    (void)call;
    return OP_PARTIAL_ROWS * sizeof(float);
}

const struct op_declaration op_loss_sum = {
    .name = "loss_sum",
    .text = "scalars[loss_sum] += sum of losses",
    .operands = LOSS_SUM_OPERANDS,
    .operand = {[LOSS_SUM_LOSSES] = {"losses", OPERAND_IN}, [LOSS_SUM_SCALARS] = {"scalars", OPERAND_INOUT}},
    .infer = loss_sum_infer,
    .flops = loss_sum_flops,
    .workspace_cap = loss_sum_workspace_cap,
    .differentiate = loss_sum_differentiate,
};
