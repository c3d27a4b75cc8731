/*
 * blend: y = alpha x + beta z, rounded to nearest if y has 16 bits.
 * y may be x or z.  The op is exact (ops/op.h).
 */
#include "ops/op.h"

#include "ops/infer.h"

const struct op_declaration op_blend = {
    OP_NAMED(blend, BLEND),
    .text = "y = alpha x + beta z",
    .operand = {[BLEND_X] = {"x", OPERAND_IN, "*"},
                [BLEND_Z] = {"z", OPERAND_IN | OPERAND_SAME_DTYPE, "*"},
                [BLEND_Y] = {"y", OPERAND_OUT, "*"}},
    .cost = {3.0, BLEND_Y},
};
