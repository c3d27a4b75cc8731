/* gelu: erf, x/2 (1 + erf(x / sqrt 2)), or tanh, x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))).
 *                                                                            Hendrycks & Gimpel 2016; PyTorch's GELU
 */
#include "ops/op.h"

#include "base/log.h"
#include "model/autodiff.h"
#include "ops/infer.h"

static bool gelu_check(const struct op_call *call, struct infer_sizes *sizes)
{
    (void)sizes;
    if (call->attrs.gelu == GELU_ERF || call->attrs.gelu == GELU_TANH)
        return true;
    log_error("%s: gelu is %d, expected erf or tanh", op_declaration(call->kind)->name, (int)call->attrs.gelu);
    return false;
}

/* erf: scale, erf, add, halve, multiply.  tanh: four more for the polynomial. */
static double gelu_forward_flops(const struct op_call *call)
{
    return (call->attrs.gelu == GELU_ERF ? 5.0 : 9.0) * cost_elements(call, GELU_FORWARD_X);
}

static enum gt_status gelu_forward_differentiate(struct autodiff *ad, const struct op *op, int32_t dy)
{
    struct op_attrs attrs = op->attrs;
    int32_t operands[GELU_BACKWARD_OPERANDS] = {[GELU_BACKWARD_DY] = dy,
                                                [GELU_BACKWARD_X] = autodiff_saved(ad, op->operand[GELU_FORWARD_X]),
                                                [GELU_BACKWARD_DX] = TENSOR_NONE};
    TRY(autodiff_target_in_place(ad, op->operand[GELU_FORWARD_Y], op->operand[GELU_FORWARD_X], GELU_BACKWARD_DX,
                                 operands, &attrs));
    return autodiff_emit(ad, op, OP_GELU_BACKWARD, &attrs, operands);
}

const struct op_declaration op_gelu_forward = {
    OP_NAMED(gelu_forward, GELU_FORWARD),
    .text = "y = gelu(x)",
    .operand = {[GELU_FORWARD_X] = {"x", OPERAND_IN | OPERAND_SAVED, "*"}, [GELU_FORWARD_Y] = {"y", OPERAND_OUT, "*"}},
    .recompute = RECOMPUTE_CLASS_ACTIVATION,
    .check = gelu_check,
    .flops = gelu_forward_flops,
    .differentiate = gelu_forward_differentiate,
};

static double gelu_backward_flops(const struct op_call *call)
{
    return (call->attrs.gelu == GELU_ERF ? 10.0 : 17.0) * cost_elements(call, GELU_BACKWARD_X);
}

const struct op_declaration op_gelu_backward = {
    OP_NAMED(gelu_backward, GELU_BACKWARD),
    .text = "dx = dy gelu'(x)",
    .operand = {[GELU_BACKWARD_DY] = {"dy", OPERAND_IN, "*"},
                [GELU_BACKWARD_X] = {"x", OPERAND_IN, "*"},
                [GELU_BACKWARD_DX] = {"dx", OPERAND_OUT, "*"}},
    .check = gelu_check,
    .flops = gelu_backward_flops,
};
