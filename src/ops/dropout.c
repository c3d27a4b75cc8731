/* dropout: y = x / (1 - p) where the mask keeps x, else 0, whatever x is.  The op is also its own backward op.
 *
 * A mask bit is a pure function of (seed, step, sample, site, element); ops/op.h defines it.
 */
#include "ops/op.h"

#include "model/autodiff.h"
#include "ops/infer.h"

static bool dropout_check(const struct op_call *call, struct infer_sizes *sizes)
{
    (void)sizes;
    return infer_time(call, DROPOUT_X) && infer_probability(call);
}

static enum gt_status dropout_differentiate(struct autodiff *ad, const struct op *op, int32_t dy)
{
    struct op_attrs attrs = op->attrs;
    int32_t operands[DROPOUT_OPERANDS] = {
        [DROPOUT_X] = dy, [DROPOUT_SCALARS] = op->operand[DROPOUT_SCALARS], [DROPOUT_Y] = TENSOR_NONE};
    TRY(autodiff_target_in_place(ad, op->operand[DROPOUT_Y], op->operand[DROPOUT_X], DROPOUT_Y, operands, &attrs));
    return autodiff_emit(ad, op, OP_DROPOUT, &attrs, operands);
}

const struct op_declaration op_dropout = {
    OP_NAMED(dropout, DROPOUT),
    .text = "y = mask x / (1 - p); its own backward",
    .operand = {[DROPOUT_X] = {"x", OPERAND_IN, "NC"},
                [DROPOUT_SCALARS] = SCALARS(OPERAND_IN),
                [DROPOUT_Y] = {"y", OPERAND_OUT, "NC"}},
    .check = dropout_check,
    .cost = {1.0, DROPOUT_X},
    .differentiate = dropout_differentiate,
};
