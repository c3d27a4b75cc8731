/*
 * residual: r = x + y.
 * Both inputs have the gradient of the sum, so the backward pass emits no op for it.
 */
#include "ops/op.h"

#include "model/autodiff.h"
#include "ops/infer.h"

static bool residual_infer(struct op_call *call)
{
    return infer_float(call, RESIDUAL_X) &&
           infer_check(call, RESIDUAL_Y, DTYPES_FLOAT, infer_shape_of(&call->operand[RESIDUAL_X])) &&
           infer_same_dtype(call, RESIDUAL_X, RESIDUAL_Y) && infer_like(call, RESIDUAL_X, RESIDUAL_R);
}

static double residual_flops(const struct op_call *call)
{
    return cost_elements(call, RESIDUAL_R);
}

static enum gt_status residual_differentiate(struct autodiff *ad, const struct op *op)
{
    int32_t dr = autodiff_gradient(ad, op->operand[RESIDUAL_R]);
    if (dr == TENSOR_NONE)
        return GT_OK;
    TRY(autodiff_share(ad, op->operand[RESIDUAL_Y], dr));
    return autodiff_share(ad, op->operand[RESIDUAL_X], dr);
}

const struct op_declaration op_residual = {
    .name = "residual",
    .text = "r = x + y",
    .operands = RESIDUAL_OPERANDS,
    .operand = {[RESIDUAL_X] = {"x", OPERAND_IN}, [RESIDUAL_Y] = {"y", OPERAND_IN}, [RESIDUAL_R] = {"r", OPERAND_OUT}},
    .infer = residual_infer,
    .flops = residual_flops,
    .differentiate = residual_differentiate,
};
