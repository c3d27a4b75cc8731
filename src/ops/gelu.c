/* The activations of an MLP: gelu, and swiglu, which is gated by one of two functions.
 *
 * gelu: erf, x/2 (1 + erf(x / sqrt 2)), or tanh, x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))).
 *                                                       Hendrycks & Gimpel 2016; PyTorch's GELU
 * swiglu: a row of x is [a | b], y = a s(a) b with s(a) = 1 / (1 + e^-a).
 *   da = dy b s(a) (1 + a (1 - s(a))),  db = dy a s(a)       Shazeer 2020, eq. 6; LlamaMLP
 * With attrs.gate = GATE_GELU it is geglu: y = gelu(a) b by the tanh form.
 *   da = dy b gelu'(a),  db = dy gelu(a)                     Shazeer 2020, eq. 6; Gemma3MLP
 */
#include "ops/infer.h"

static bool gelu_check(const struct op_call *call, struct infer_sizes *sizes)
{
    (void)sizes;
    return infer_expect(call->attrs.gelu == GELU_ERF || call->attrs.gelu == GELU_TANH, call,
                        "gelu is %d, expected erf or tanh", (int)call->attrs.gelu);
}

/* erf: scale, erf, add, halve, multiply.  tanh: four more for the polynomial. */
static double gelu_forward_flops(const struct op_call *call)
{
    return (call->attrs.gelu == GELU_ERF ? 5.0 : 9.0) * cost_elements(call, GELU_FORWARD_X);
}

const struct op_declaration op_gelu_forward = {
    OP_NAMED(gelu_forward, GELU_FORWARD),
    .operand = {[GELU_FORWARD_X] = {OPERAND_IN | OPERAND_SAVED, "*"},
                [GELU_FORWARD_Y] = {OPERAND_OUT, "*"}},
    .recompute = RECOMPUTE_CLASS_ACTIVATION,
    .check = gelu_check,
    .flops = gelu_forward_flops,
    .backward = OP_GELU_BACKWARD,
};

static double gelu_backward_flops(const struct op_call *call)
{
    return (call->attrs.gelu == GELU_ERF ? 10.0 : 17.0) * cost_elements(call, GELU_BACKWARD_X);
}

const struct op_declaration op_gelu_backward = {
    OP_NAMED(gelu_backward, GELU_BACKWARD),
    .operand = {[GELU_BACKWARD_DY] = {OPERAND_IN, "*"},
                [GELU_BACKWARD_X] = {OPERAND_IN, "*"},
                [GELU_BACKWARD_DX] = {OPERAND_OUT | OPERAND_IN_PLACE, "*"}},
    .check = gelu_check,
    .flops = gelu_backward_flops,
};

static bool swiglu_forward_check(const struct op_call *call, struct infer_sizes *sizes)
{
    const int64_t columns = op_columns(call, SWIGLU_FORWARD_X);
    infer_size_set(sizes, 'F', columns / 2);
    return infer_expect(columns % 2 == 0, call,
                        "x has %" PRId64 " columns, expected an even number", columns);
}

/* A pair: negate, exp, add, divide, two multiplications; geglu: gelu's, and one. */
static double swiglu_forward_flops(const struct op_call *call)
{
    return (call->attrs.gate == GATE_GELU ? 5.0 : 3.0) * cost_elements(call, SWIGLU_FORWARD_X);
}

const struct op_declaration op_swiglu_forward = {
    OP_NAMED(swiglu_forward, SWIGLU_FORWARD),
    .operand = {[SWIGLU_FORWARD_X] = {OPERAND_IN | OPERAND_SAVED, "NX"},
                [SWIGLU_FORWARD_Y] = {OPERAND_OUT, "NF"}},
    .recompute = RECOMPUTE_CLASS_ACTIVATION,
    .check = swiglu_forward_check,
    .flops = swiglu_forward_flops,
    .backward = OP_SWIGLU_BACKWARD,
};

static bool swiglu_backward_check(const struct op_call *call, struct infer_sizes *sizes)
{
    const int64_t columns = op_columns(call, SWIGLU_BACKWARD_X),
                  both = 2 * op_columns(call, SWIGLU_BACKWARD_DY);
    (void)sizes;
    return infer_expect(columns == both, call,
                        "x has %" PRId64 " columns, expected %" PRId64 ", twice those of dy",
                        columns, both);
}

/* A pair: the logistic function 4, a s(a) 1, db 1, da 6; geglu: both of gelu's, and three. */
static double swiglu_backward_flops(const struct op_call *call)
{
    return (call->attrs.gate == GATE_GELU ? 14.5 : 6.0) * cost_elements(call, SWIGLU_BACKWARD_X);
}

const struct op_declaration op_swiglu_backward = {
    OP_NAMED(swiglu_backward, SWIGLU_BACKWARD),
    .operand = {[SWIGLU_BACKWARD_DY] = {OPERAND_IN, "NF"},
                [SWIGLU_BACKWARD_X] = {OPERAND_IN, "NX"},
                [SWIGLU_BACKWARD_DX] = {OPERAND_OUT, "NX"}},
    .check = swiglu_backward_check,
    .flops = swiglu_backward_flops,
};
