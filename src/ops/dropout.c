/* dropout: y = x / (1 - p) where the mask keeps x, else 0, whatever x is.  The op is also its own backward op.
 *
 * A mask bit is a pure function of (seed, step, sample, site, element); ops/op.h defines it.
 */
#include "ops/op.h"

#include "model/autodiff.h"
#include "ops/infer.h"

static bool dropout_infer(struct op_call *call)
{
    return infer_check(call, DROPOUT_X, DTYPES_FLOAT, SHAPE2(ANY, ANY)) &&
           infer_time(call, infer_rows(call, DROPOUT_X)) && infer_probability(call) &&
           infer_scalars(call, DROPOUT_SCALARS) && infer_like(call, DROPOUT_X, DROPOUT_Y);
}

static double dropout_flops(const struct op_call *call)
{
    return cost_elements(call, DROPOUT_X);
}

static enum gt_status dropout_differentiate(struct autodiff *ad, const struct op *op)
{
    int32_t dy = autodiff_gradient(ad, op->operand[DROPOUT_Y]);
    if (dy == TENSOR_NONE)
        return GT_OK;
    struct op_attrs attrs = op->attrs;
    int32_t operands[DROPOUT_OPERANDS] = {
        [DROPOUT_X] = dy, [DROPOUT_SCALARS] = op->operand[DROPOUT_SCALARS], [DROPOUT_Y] = TENSOR_NONE};
    TRY(autodiff_target_in_place(ad, op->operand[DROPOUT_Y], op->operand[DROPOUT_X], DROPOUT_Y, operands, &attrs));
    return autodiff_emit(ad, op, OP_DROPOUT, &attrs, operands);
}

const struct op_declaration op_dropout = {
    .name = "dropout",
    .text = "y = mask x / (1 - p); its own backward",
    .operands = DROPOUT_OPERANDS,
    .operand = {[DROPOUT_X] = {"x", OPERAND_IN},
                [DROPOUT_SCALARS] = {"scalars", OPERAND_IN},
                [DROPOUT_Y] = {"y", OPERAND_OUT}},
    .infer = dropout_infer,
    .flops = dropout_flops,
    .differentiate = dropout_differentiate,
};
