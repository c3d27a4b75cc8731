/* gradient_round: y = SR(x, ROUNDING_GRADIENT of the micro-step), or SR(y + x, ...) if it accumulates.  The op is exact
 * (ops/op.h).
 */
#include "ops/infer.h"

static double gradient_round_flops(const struct op_call *call)
{
    return call->attrs.accumulate != 0 ? cost_elements(call, GRADIENT_ROUND_Y) : 0.0;
}

const struct op_declaration op_gradient_round = {
    OP_NAMED(gradient_round, GRADIENT_ROUND),
    .text = "y = x, or y + x, rounded stochastically to bf16",
    .operand = {[GRADIENT_ROUND_X] = {"x", OPERAND_IN, "*", DTYPES_F32},
                [GRADIENT_ROUND_SCALARS] = SCALARS(OPERAND_IN),
                [GRADIENT_ROUND_Y] = {"y", OPERAND_OUT | OPERAND_ACCUMULATES, "*", DTYPES_BF16}},
    .check = infer_index_base,
    .flops = gradient_round_flops,
};
