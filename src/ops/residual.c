/*
 * residual: r = x + y.
 * Both inputs have the gradient of the sum, so the backward pass emits no op for it.
 */
#include "ops/op.h"

#include "model/autodiff.h"

static enum gt_status residual_differentiate(struct autodiff *ad, const struct op *op, int32_t dr)
{
    TRY(autodiff_share(ad, op->operand[RESIDUAL_Y], dr));
    return autodiff_share(ad, op->operand[RESIDUAL_X], dr);
}

const struct op_declaration op_residual = {
    OP_NAMED(residual, RESIDUAL),
    .text = "r = x + y",
    .operand = {[RESIDUAL_X] = {"x", OPERAND_IN, "*"},
                [RESIDUAL_Y] = {"y", OPERAND_IN | OPERAND_SAME_DTYPE, "*"},
                [RESIDUAL_R] = {"r", OPERAND_OUT, "*"}},
    .cost = {1.0, RESIDUAL_R},
    .differentiate = residual_differentiate,
};
