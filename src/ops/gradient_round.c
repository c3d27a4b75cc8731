/* gradient_round: y = SR(x, ROUNDING_GRADIENT of the micro-step), or SR(y + x, ...) if it accumulates.  The op is exact
 * (ops/op.h).
 */
#include "ops/op.h"

#include "ops/infer.h"

static bool gradient_round_infer(struct op_call *call)
{
    if (!infer_float(call, GRADIENT_ROUND_X) || !infer_scalars(call, GRADIENT_ROUND_SCALARS) || !infer_index_base(call))
        return false;
    struct infer_shape shape = infer_shape_of(&call->operand[GRADIENT_ROUND_X]);
    return infer_check(call, GRADIENT_ROUND_X, DTYPES_F32, shape) &&
           infer_fill(call, GRADIENT_ROUND_Y, DTYPE_BF16, DTYPES_BF16, shape);
}

static double gradient_round_flops(const struct op_call *call)
{
    return call->attrs.accumulate != 0 ? cost_elements(call, GRADIENT_ROUND_Y) : 0.0;
}

const struct op_declaration op_gradient_round = {
    .name = "gradient_round",
    .text = "y = x, or y + x, rounded stochastically to bf16",
    .operands = GRADIENT_ROUND_OPERANDS,
    .operand = {[GRADIENT_ROUND_X] = {"x", OPERAND_IN},
                [GRADIENT_ROUND_SCALARS] = {"scalars", OPERAND_IN},
                [GRADIENT_ROUND_Y] = {"y", OPERAND_OUT | OPERAND_ACCUMULATES}},
    .infer = gradient_round_infer,
    .flops = gradient_round_flops,
};
