/*
 * fill: y = value.
 * copy: y (+)= x.
 */
#include "ops/op.h"

#include "ops/infer.h"

const struct op_declaration op_fill = {
    OP_NAMED(fill, FILL), .text = "y = value",
    .operand = {[FILL_Y] = {"y", OPERAND_OUT, "*"}}, /* must be bound, because there is no input to infer from */
};

static double copy_flops(const struct op_call *call)
{
    return call->attrs.accumulate != 0 ? cost_elements(call, COPY_Y) : 0.0;
}

const struct op_declaration op_copy = {
    OP_NAMED(copy, COPY),
    .text = "y (+)= x",
    .operand = {[COPY_X] = {"x", OPERAND_IN, "*"}, [COPY_Y] = {"y", OPERAND_OUT | OPERAND_ACCUMULATES, "*"}},
    .flops = copy_flops,
};
