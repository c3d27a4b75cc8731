/* The norms of rows.
 *
 * layernorm: y = (x - mean) rstd gain + bias, over the last dimension.            Ba et al. 2016
 * mean and rstd = 1 / sqrt(biased variance + epsilon) are stored in fp32.  With xh = (x - mean)
 * rstd:
 *   dx = rstd (dy g - mean_C(dy g) - xh mean_C(dy g xh)),  dgain = sum dy xh,  dbias = sum dy
 *
 * rmsnorm: y = x rstd g, rstd = 1 / sqrt(mean_C(x^2) + epsilon).
 *                                               Zhang & Sennrich 2019; LlamaRMSNorm
 *   dx = rstd (dy g - xh mean_C(dy g xh)),  dgain = sum dy xh
 * g is gain + gain_offset; the offset is 1 where files have gains minus 1 (Gemma3RMSNorm).  An
 * absent gain is 1.
 *
 * The operands of rmsnorm have the indices of layernorm's, whose bias and mean follow them.  The
 * functions and kernels of layernorm therefore compute rmsnorm too, where the mean is absent.
 */
#include "ops/infer.h"

_Static_assert((int)RMSNORM_FORWARD_OPERANDS == (int)LAYERNORM_FORWARD_BIAS,
               "rmsnorm's operands come first");
_Static_assert((int)RMSNORM_FORWARD_RSTD == (int)LAYERNORM_FORWARD_RSTD,
               "rmsnorm's operands come first");
_Static_assert((int)RMSNORM_BACKWARD_OPERANDS == (int)LAYERNORM_BACKWARD_DBIAS,
               "rmsnorm's operands come first");
_Static_assert((int)RMSNORM_BACKWARD_DGAIN == (int)LAYERNORM_BACKWARD_DGAIN,
               "rmsnorm's operands come first");

/* Mean 1, variance 3, normalise 2, gain 1, bias 1. */
static double layernorm_forward_flops(const struct op_call *call)
{
    double affine = call->operand[LAYERNORM_FORWARD_BIAS].present ? 2.0 : 1.0;
    return (6.0 + affine) * cost_elements(call, LAYERNORM_FORWARD_X);
}

const struct op_declaration op_layernorm_forward = {
    OP_NAMED(layernorm_forward, LAYERNORM_FORWARD),
    .operand = {[LAYERNORM_FORWARD_X] = {OPERAND_IN | OPERAND_SAVED, "NC"},
                [LAYERNORM_FORWARD_GAIN] = {OPERAND_IN | OPERAND_SAVED, "C"},
                [LAYERNORM_FORWARD_BIAS] = {OPERAND_IN | OPERAND_OPTIONAL, "C"},
                [LAYERNORM_FORWARD_Y] = {OPERAND_OUT, "NC"},
                [LAYERNORM_FORWARD_MEAN] = {OPERAND_OUT | OPERAND_SAVED, "N", DTYPES_F32},
                [LAYERNORM_FORWARD_RSTD] = {OPERAND_OUT | OPERAND_SAVED, "N", DTYPES_F32}},
    .recompute = RECOMPUTE_CLASS_NORM,
    .flops = layernorm_forward_flops,
    .backward = OP_LAYERNORM_BACKWARD,
};

/* xh 2, dy g 1, two means 3, dx 4, dgain 2, dbias 1. */
static double layernorm_backward_flops(const struct op_call *call)
{
    double affine = call->operand[LAYERNORM_BACKWARD_DBIAS].present ? 3.0 : 2.0;
    return (10.0 + affine) * cost_elements(call, LAYERNORM_BACKWARD_X);
}

const struct op_declaration op_layernorm_backward = {
    OP_NAMED(layernorm_backward, LAYERNORM_BACKWARD),
    .operand = {[LAYERNORM_BACKWARD_DY] = {OPERAND_IN, "NC"},
                [LAYERNORM_BACKWARD_X] = {OPERAND_IN, "NC"},
                [LAYERNORM_BACKWARD_GAIN] = {OPERAND_IN, "C"},
                [LAYERNORM_BACKWARD_MEAN] = {OPERAND_IN, "N", DTYPES_F32},
                [LAYERNORM_BACKWARD_RSTD] = {OPERAND_IN, "N", DTYPES_F32},
                [LAYERNORM_BACKWARD_DX] = {OPERAND_OUT | OPERAND_ACCUMULATES, "NC"},
                [LAYERNORM_BACKWARD_DGAIN] = {OPERAND_OUT | OPERAND_ACCUMULATES, "C",
                                              .like = LAYERNORM_BACKWARD_GAIN},
                [LAYERNORM_BACKWARD_DBIAS] = {OPERAND_OUT | OPERAND_OPTIONAL | OPERAND_ACCUMULATES,
                                              "C", .like = LAYERNORM_BACKWARD_GAIN}},
    .flops = layernorm_backward_flops,
    .partials = 2 * OP_PARTIAL_ROWS,
};

/* Mean of squares 2, normalise 1, gain 1. */
const struct op_declaration op_rmsnorm_forward = {
    OP_NAMED(rmsnorm_forward, RMSNORM_FORWARD),
    .operand = {[RMSNORM_FORWARD_X] = {OPERAND_IN | OPERAND_SAVED, "NC"},
                [RMSNORM_FORWARD_GAIN] = {OPERAND_IN | OPERAND_SAVED | OPERAND_OPTIONAL, "C"},
                [RMSNORM_FORWARD_Y] = {OPERAND_OUT, "NC"},
                [RMSNORM_FORWARD_RSTD] = {OPERAND_OUT | OPERAND_SAVED, "N", DTYPES_F32}},
    .recompute = RECOMPUTE_CLASS_NORM,
    .cost = {4.0, RMSNORM_FORWARD_X},
    .backward = OP_RMSNORM_BACKWARD,
};

static bool rmsnorm_backward_check(const struct op_call *call, struct infer_sizes *sizes)
{
    (void)sizes;
    return infer_expect(call->operand[RMSNORM_BACKWARD_GAIN].present ||
                            !call->operand[RMSNORM_BACKWARD_DGAIN].present,
                        call, "operand dgain is present, expected none without operand gain");
}

/* xh 1, dy g 1, mean 2, dx 3, dgain 2. */
const struct op_declaration op_rmsnorm_backward = {
    OP_NAMED(rmsnorm_backward, RMSNORM_BACKWARD),
    .operand = {[RMSNORM_BACKWARD_DY] = {OPERAND_IN, "NC"},
                [RMSNORM_BACKWARD_X] = {OPERAND_IN, "NC"},
                [RMSNORM_BACKWARD_GAIN] = {OPERAND_IN | OPERAND_OPTIONAL, "C"},
                [RMSNORM_BACKWARD_RSTD] = {OPERAND_IN, "N", DTYPES_F32},
                [RMSNORM_BACKWARD_DX] = {OPERAND_OUT | OPERAND_ACCUMULATES, "NC"},
                [RMSNORM_BACKWARD_DGAIN] = {OPERAND_OUT | OPERAND_OPTIONAL | OPERAND_ACCUMULATES,
                                            "C", .like = RMSNORM_BACKWARD_GAIN}},
    .check = rmsnorm_backward_check,
    .cost = {9.0, RMSNORM_BACKWARD_X},
    .partials = OP_PARTIAL_ROWS,
};
