/*
 * fill: y = value.
 * copy: y (+)= x.
 */
#include "ops/op.h"

#include "ops/infer.h"

/* There is no input to infer from, so the output must be bound. */
static bool fill_infer(struct op_call *call)
{
    return infer_float(call, FILL_Y);
}

static double fill_flops(const struct op_call *call)
{
    (void)call;
    return 0.0;
}

const struct op_declaration op_fill = {
    .name = "fill",
    .text = "y = value",
    .operands = FILL_OPERANDS,
    .operand = {[FILL_Y] = {"y", OPERAND_OUT}},
    .infer = fill_infer,
    .flops = fill_flops,
};

static bool copy_infer(struct op_call *call)
{
    return infer_like(call, COPY_X, COPY_Y);
}

static double copy_flops(const struct op_call *call)
{
    return call->attrs.accumulate != 0 ? cost_elements(call, COPY_Y) : 0.0;
}

const struct op_declaration op_copy = {
    .name = "copy",
    .text = "y (+)= x",
    .operands = COPY_OPERANDS,
    .operand = {[COPY_X] = {"x", OPERAND_IN}, [COPY_Y] = {"y", OPERAND_OUT | OPERAND_ACCUMULATES}},
    .infer = copy_infer,
    .flops = copy_flops,
};
