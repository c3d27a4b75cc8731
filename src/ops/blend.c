/*
 * blend: y = alpha x + beta z, rounded to nearest if y has 16 bits.
 * y may be x or z.  The op is exact (ops/op.h).
 */
#include "ops/op.h"

#include "ops/infer.h"

static bool blend_infer(struct op_call *call)
{
    return infer_float(call, BLEND_X) &&
           infer_check(call, BLEND_Z, DTYPES_FLOAT, infer_shape_of(&call->operand[BLEND_X])) &&
           infer_same_dtype(call, BLEND_X, BLEND_Z) && infer_like(call, BLEND_X, BLEND_Y);
}

static double blend_flops(const struct op_call *call)
{
    return 3.0 * cost_elements(call, BLEND_Y);
}

const struct op_declaration op_blend = {
    .name = "blend",
    .text = "y = alpha x + beta z",
    .operands = BLEND_OPERANDS,
    .operand = {[BLEND_X] = {"x", OPERAND_IN}, [BLEND_Z] = {"z", OPERAND_IN}, [BLEND_Y] = {"y", OPERAND_OUT}},
    .infer = blend_infer,
    .flops = blend_flops,
};
