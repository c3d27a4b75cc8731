/* rope: rotary position embedding of packed queries and keys, with an optional norm before it.
 *
 * A row of x is H + 2 KV heads of size D, as attention reads it: queries, keys, values.  Row n is
 * at position p = scalars.POSITION + n % time, and c, s are the two halves of row p of the table,
 * which has R <= D columns: cosines and sines.  With z = x, i < R/2 and j = i + R/2, each head of
 * the queries and keys is rotated by pairs:
 *   y_i = z_i c_i - z_j s_i,  y_j = z_j c_i + z_i s_i
 *                               Su et al. 2021; pairs as in transformers' rotate_half()
 * The rest of a head, y_k = z_k, and the values are not rotated.  The host makes the table, so that
 * no kernel knows theta or how frequencies are scaled.
 *
 * With gains, z = x r g, r = 1 / sqrt(mean(x^2) + epsilon).  If there are 2 D gains, first those of
 * the queries, then those of the keys, the mean is over a head (Qwen3).  If there are (H + KV) D,
 * it is over all heads of the queries, or of the keys (OLMo 2).  g is gain + gain_offset.  The
 * backward computes r again.  With dz, which is dy rotated back, and xh = x r:
 *   dx = r (dz g - xh mean(dz g xh)),  dgain = sum dz xh
 *
 * With attrs.gated a row of x has H heads more: after each head of the queries is its gate, which
 * rope skips (ops/gate.c).  dx then accumulates, and leaves the gates' columns as they are.
 *
 * Without gains and gates y is rotated in place, and so is the gradient: x and dy are absent, and y
 * and dx accumulate.  The first operands of both ops have the same indices.
 */
#include <math.h>

#include "model/autodiff.h"
#include "ops/infer.h"

_Static_assert((int)ROPE_FORWARD_GAIN == (int)ROPE_BACKWARD_GAIN,
               "the first operands are the same");
_Static_assert((int)ROPE_FORWARD_Y == (int)ROPE_BACKWARD_DX, "the first operands are the same");

static bool in_place_check(const struct op_call *call)
{
    const struct operand *y = &call->operand[ROPE_FORWARD_Y];
    const bool in_place = op_rope_in_place(call), is_backward = call->kind == OP_ROPE_BACKWARD;
    return infer_expect(
               call->operand[ROPE_FORWARD_X].present != in_place && (!in_place || y->present), call,
               "operand %s must be present exactly with gains or gates; otherwise %s rotates in place",
               op_operand_name(call->kind, ROPE_FORWARD_X),
               op_operand_name(call->kind, ROPE_FORWARD_Y)) &&
           infer_expect(!y->present || op_accumulates(call, ROPE_FORWARD_Y) ==
                                           (in_place || (is_backward && call->attrs.gated)),
                        call, "%s must accumulate exactly when it rotates in place%s",
                        op_operand_name(call->kind, ROPE_FORWARD_Y),
                        is_backward ? " or x has gates" : "");
}

static bool heads_check(const struct op_call *call)
{
    const int64_t heads = call->attrs.heads, kv_heads = call->attrs.kv_heads,
                  turned = op_columns(call, ROPE_FORWARD_TABLE);
    const int64_t gates = call->attrs.gated && call->kind == OP_ROPE_FORWARD ? heads : 0,
                  columns = op_columns(call, op_rope_rows(call)),
                  all = heads + 2 * kv_heads + gates,
                  size = heads >= 1 && kv_heads >= 1 && columns % all == 0 ? columns / all : 0;
    return infer_expect(
        size >= turned && size % 2 == 0 && turned % 2 == 0, call,
        "operand %s has %" PRId64 " columns, expected those of %" PRId64 " heads and 2 x %" PRId64
        " key-value heads of an even size, of which the table turns %" PRId64,
        op_operand_name(call->kind, op_rope_rows(call)), columns, heads, kv_heads, turned);
}

static bool rope_check(const struct op_call *call, struct infer_sizes *sizes)
{
    const struct operand *gain = &call->operand[ROPE_FORWARD_GAIN],
                         *table = &call->operand[ROPE_FORWARD_TABLE];
    if (!in_place_check(call) || !infer_time(call, op_rope_rows(call)) || !heads_check(call))
        return false;
    const int64_t plain = (call->attrs.heads + 2 * call->attrs.kv_heads) * op_rope_size(call);
    infer_size_set(sizes, 'W', plain);
    infer_size_set(sizes, 'X',
                   plain + (call->attrs.gated ? call->attrs.heads * op_rope_size(call) : 0));
    const int64_t two = 2 * op_rope_size(call),
                  all = (call->attrs.heads + call->attrs.kv_heads) * op_rope_size(call);
    return infer_expect(table->dims[0] >= call->attrs.time, call,
                        "operand table has %" PRId64
                        " positions, expected at least time = %" PRId32,
                        table->dims[0], call->attrs.time) &&
           infer_expect(!gain->present || gain->dims[0] == two || gain->dims[0] == all, call,
                        "operand gain is [%" PRId64 "], expected [%" PRId64 "] or [%" PRId64 "]",
                        gain->dims[0], two, all);
}

/* Returns the number of elements of the queries and keys. */
static double turned_elements(const struct op_call *call)
{
    return (double)op_rows(call, op_rope_rows(call)) *
           (double)(call->attrs.heads + call->attrs.kv_heads) * (double)op_rope_size(call);
}

/* An element of the queries and keys: 3; mean of squares 2, normalise 1, gain 1. */
static double rope_forward_flops(const struct op_call *call)
{
    return (call->operand[ROPE_FORWARD_GAIN].present ? 7.0 : 3.0) * turned_elements(call);
}

static enum gt_status rope_forward_differentiate(struct autodiff *ad, const struct op *op,
                                                 int32_t dy)
{
    const int32_t x = op->operand[ROPE_FORWARD_X], gain = op->operand[ROPE_FORWARD_GAIN];
    union op_arguments backward = {.ROPE_BACKWARD = {
                                       .table = op->operand[ROPE_FORWARD_TABLE],
                                       .scalars = op->operand[ROPE_FORWARD_SCALARS],
                                       .attrs = op->attrs,
                                   }};
    if (x == TENSOR_NONE) {
        backward.ROPE_BACKWARD.dx = dy;
    } else {
        backward.ROPE_BACKWARD.dy = dy;
        backward.ROPE_BACKWARD.gain = autodiff_saved(ad, gain);
        backward.ROPE_BACKWARD.x = gain == TENSOR_NONE ? TENSOR_NONE : autodiff_saved(ad, x);
        TRY(autodiff_target(ad, x, ROPE_BACKWARD_DX, &backward));
        if (gain != TENSOR_NONE)
            TRY(autodiff_target(ad, gain, ROPE_BACKWARD_DGAIN, &backward));
    }
    return autodiff_emit(ad, op, OP_ROPE_BACKWARD, &backward);
}

/* In place, only the elements that are rotated are touched. */
static double rope_rows(const struct op_call *call, int32_t slot)
{
    const double turned =
        (double)op_columns(call, ROPE_FORWARD_TABLE) * (call->attrs.heads + call->attrs.kv_heads);
    if (slot == ROPE_FORWARD_TABLE)
        return (double)call->attrs.time;
    return slot == ROPE_FORWARD_Y && op_rope_in_place(call)
               ? (double)op_rows(call, slot) * turned / (double)op_columns(call, slot)
               : INFINITY;
}

/* Two numbers for each mean. */
static size_t rope_forward_workspace_cap(const struct op_call *call)
{
    const int64_t means =
        op_rows(call, op_rope_rows(call)) * (call->attrs.heads + call->attrs.kv_heads);
    return call->operand[ROPE_FORWARD_GAIN].present ? (size_t)(2 * means) * sizeof(float) : 0;
}

const struct op_declaration op_rope_forward = {
    OP_NAMED(rope_forward, ROPE_FORWARD),
    .operand = {[ROPE_FORWARD_X] = {OPERAND_IN | OPERAND_SAVED | OPERAND_OPTIONAL, "NX"},
                [ROPE_FORWARD_TABLE] = {OPERAND_IN, "PD", DTYPES_F32},
                [ROPE_FORWARD_SCALARS] = SCALARS(OPERAND_IN),
                [ROPE_FORWARD_GAIN] = {OPERAND_IN | OPERAND_SAVED | OPERAND_OPTIONAL, "G"},
                [ROPE_FORWARD_Y] = {OPERAND_OUT | OPERAND_ACCUMULATES, "NW"}},
    .recompute = RECOMPUTE_CLASS_QKV,
    .check = rope_check,
    .flops = rope_forward_flops,
    .workspace_cap = rope_forward_workspace_cap,
    .rows = rope_rows,
    .differentiate = rope_forward_differentiate,
};

static bool rope_backward_check(const struct op_call *call, struct infer_sizes *sizes)
{
    const bool has_gain = call->operand[ROPE_BACKWARD_GAIN].present;
    return rope_check(call, sizes) &&
           infer_check(call, ROPE_BACKWARD_X, DTYPES_FLOAT,
                       SHAPE2(op_rows(call, op_rope_rows(call)), sizes->letter['X' - 'A'])) &&
           infer_expect(call->operand[ROPE_BACKWARD_X].present == has_gain &&
                            call->operand[ROPE_BACKWARD_DGAIN].present == has_gain,
                        call, "operands x and dgain must be present exactly when operand gain is");
}

/* With gains: square 2, normalise 1, gain 1, mean 2, dx 3, dgain 2 more. */
static double rope_backward_flops(const struct op_call *call)
{
    return (call->operand[ROPE_BACKWARD_GAIN].present ? 14.0 : 3.0) * turned_elements(call);
}

/* The same, and the parts of the sums over rows. */
static size_t rope_backward_workspace_cap(const struct op_call *call)
{
    const size_t gains = (size_t)operand_elements(&call->operand[ROPE_BACKWARD_GAIN]);
    return rope_forward_workspace_cap(call) + OP_PARTIAL_ROWS * gains * sizeof(float);
}

const struct op_declaration op_rope_backward = {
    OP_NAMED(rope_backward, ROPE_BACKWARD),
    .operand = {[ROPE_BACKWARD_DY] = {OPERAND_IN | OPERAND_OPTIONAL, "NW"},
                [ROPE_BACKWARD_TABLE] = {OPERAND_IN, "PD", DTYPES_F32},
                [ROPE_BACKWARD_SCALARS] = SCALARS(OPERAND_IN),
                [ROPE_BACKWARD_GAIN] = {OPERAND_IN | OPERAND_OPTIONAL, "G"},
                [ROPE_BACKWARD_DX] = {OPERAND_OUT | OPERAND_ACCUMULATES, "NX"},
                [ROPE_BACKWARD_X] = {OPERAND_IN | OPERAND_OPTIONAL, "??"},
                [ROPE_BACKWARD_DGAIN] = {OPERAND_OUT | OPERAND_OPTIONAL | OPERAND_ACCUMULATES, "G",
                                         .like = ROPE_BACKWARD_GAIN}},
    .check = rope_backward_check,
    .flops = rope_backward_flops,
    .workspace_cap = rope_backward_workspace_cap,
    .rows = rope_rows,
};
