/* gate: multiplies the result of attention or the delta rule by a gate, with an optional norm
 * before.
 *
 * A row of x is H heads of size D.  With gains g [D] the mean is over a head, else u = x:
 *   u = x r g,  r = 1 / sqrt(mean(x^2) + epsilon),  y = u f(z)
 * f is s(z) = 1 / (1 + e^-z) or z s(z), as attrs.gate says.       Qwen3_5RMSNormGated, after Gu &
 *                                                                 Dao 2023; Qwen3_5Attention
 * A row of z is that of x, or, if it has more columns, what rope's gated rows are: H pairs of q and
 * z of a head, then others.  With du = dy f(z), xh = x r:
 *   dz = dy u f'(z);  dx = du, or r (du g - xh mean(du g xh)),  dgain = sum du xh
 * Other columns of dz are 0, or stay if it accumulates.
 */
#include "ops/infer.h"

static bool gate_check(const struct op_call *call, struct infer_sizes *sizes)
{
    const int64_t columns = op_columns(call, GATE_FORWARD_X), heads = call->attrs.heads,
                  gates = op_columns(call, GATE_FORWARD_Z);
    const struct operand *gain = &call->operand[GATE_FORWARD_GAIN];
    (void)sizes;
    return infer_expect(heads >= 1 && columns % heads == 0, call,
                        "operand x has %" PRId64
                        " columns, expected a multiple of heads = %" PRId64,
                        columns, heads) &&
           infer_expect(gates == columns || gates >= 2 * columns, call,
                        "operand z has %" PRId64 " columns, expected %" PRId64
                        ", or at least twice as many",
                        gates, columns) &&
           infer_expect(!gain->present || gain->dims[0] == columns / heads, call,
                        "operand gain is [%" PRId64 "], expected [%" PRId64 "]", gain->dims[0],
                        columns / heads) &&
           infer_expect(call->attrs.gate == GATE_SILU || call->attrs.gate == GATE_SIGMOID, call,
                        "gate is %d, expected silu or sigmoid", (int)call->attrs.gate);
}

/* The gate 5; mean of squares 2, normalise 1, gain 1. */
static double gate_forward_flops(const struct op_call *call)
{
    return (call->operand[GATE_FORWARD_GAIN].present ? 9.0 : 5.0) *
           cost_elements(call, GATE_FORWARD_X);
}

const struct op_declaration op_gate_forward = {
    OP_NAMED(gate_forward, GATE_FORWARD),
    .operand = {[GATE_FORWARD_X] = {OPERAND_IN | OPERAND_SAVED, "NC"},
                [GATE_FORWARD_Z] = {OPERAND_IN | OPERAND_SAVED, "NZ"},
                [GATE_FORWARD_GAIN] = {OPERAND_IN | OPERAND_SAVED | OPERAND_OPTIONAL, "D"},
                [GATE_FORWARD_Y] = {OPERAND_OUT, "NC"}},
    .recompute = RECOMPUTE_CLASS_NORM,
    .check = gate_check,
    .flops = gate_forward_flops,
    .backward = OP_GATE_BACKWARD,
};

_Static_assert((int)GATE_BACKWARD_X == (int)GATE_FORWARD_X, "one function serves both ops");
_Static_assert((int)GATE_BACKWARD_Z == (int)GATE_FORWARD_Z, "one function serves both ops");
_Static_assert((int)GATE_BACKWARD_GAIN == (int)GATE_FORWARD_GAIN, "one function serves both ops");

static bool gate_backward_check(const struct op_call *call, struct infer_sizes *sizes)
{
    return gate_check(call, sizes) &&
           infer_expect(call->operand[GATE_BACKWARD_DGAIN].present ==
                            call->operand[GATE_BACKWARD_GAIN].present,
                        call, "operand dgain must be present exactly when operand gain is");
}

/* The gate and its slope 9, two products 3; with a norm 12 more. */
static double gate_backward_flops(const struct op_call *call)
{
    return (call->operand[GATE_BACKWARD_GAIN].present ? 24.0 : 12.0) *
           cost_elements(call, GATE_BACKWARD_X);
}

/* r of each head, and parts of the sums over rows. */
static size_t gate_backward_workspace_cap(const struct op_call *call)
{
    const size_t gains = (size_t)op_elements(call, GATE_BACKWARD_GAIN),
                 heads = (size_t)(op_rows(call, GATE_BACKWARD_X) * call->attrs.heads);
    return gains == 0 ? 0 : (heads + OP_PARTIAL_ROWS * gains) * sizeof(float);
}

const struct op_declaration op_gate_backward = {
    OP_NAMED(gate_backward, GATE_BACKWARD),
    .operand = {[GATE_BACKWARD_X] = {OPERAND_IN, "NC"},
                [GATE_BACKWARD_Z] = {OPERAND_IN, "NZ"},
                [GATE_BACKWARD_GAIN] = {OPERAND_IN | OPERAND_OPTIONAL, "D"},
                [GATE_BACKWARD_DY] = {OPERAND_IN, "NC"},
                [GATE_BACKWARD_DX] = {OPERAND_OUT, "NC"},
                [GATE_BACKWARD_DZ] = {OPERAND_OUT | OPERAND_ACCUMULATES, "NZ",
                                      .like = GATE_BACKWARD_Z},
                [GATE_BACKWARD_DGAIN] = {OPERAND_OUT | OPERAND_OPTIONAL | OPERAND_ACCUMULATES, "D",
                                         .like = GATE_BACKWARD_GAIN}},
    .check = gate_backward_check,
    .flops = gate_backward_flops,
    .workspace_cap = gate_backward_workspace_cap,
};
