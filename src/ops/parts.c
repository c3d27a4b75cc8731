/* Parts of an update on several ranks.
 *
 * exchange sends x to rank `to`, and receives y from rank `from`; either may be absent.  These two
 * ranks run matching ops with operands of as many bytes, in the same order.  The op begins like
 * fetch and store, and ends before its wait.
 *
 * sum_parts: y = ((p0 + p1) + p2) + ..., or y + p0 + p1 + ... in that order if it accumulates,
 * where part `from` is x and others [parts - 1, N] has the rest in order; without others there is
 * one part.  The op is exact (ops/op.h).  y may be x.
 */
#include "ops/infer.h"

const struct op_declaration op_exchange = {
    OP_NAMED(exchange, EXCHANGE),
    .queue = QUEUE_RANKS,
    .operand = {[EXCHANGE_X] = {OPERAND_IN | OPERAND_OPTIONAL, ".", DTYPES_STATE},
                [EXCHANGE_Y] = {OPERAND_OUT | OPERAND_OPTIONAL, ".", DTYPES_STATE}},
};

static bool sum_parts_check(const struct op_call *call, struct infer_sizes *sizes)
{
    const struct operand *others = &call->operand[SUM_PARTS_OTHERS];
    const int64_t parts = others->present ? others->dims[0] + 1 : 1;
    (void)sizes;
    return infer_expect(!others->present || others->dims[1] == op_elements(call, SUM_PARTS_X), call,
                        "operand others has %" PRId64 " columns, expected the elements of x",
                        others->dims[1]) &&
           infer_expect(call->attrs.from >= 0 && call->attrs.from < parts, call,
                        "x is part %" PRId32 ", expected 0 to %" PRId64, call->attrs.from,
                        parts - 1);
}

static double sum_parts_flops(const struct op_call *call)
{
    const double before = call->attrs.accumulate != 0 ? cost_elements(call, SUM_PARTS_X) : 0.0;
    return before + cost_elements(call, SUM_PARTS_OTHERS);
}

const struct op_declaration op_sum_parts = {
    OP_NAMED(sum_parts, SUM_PARTS),
    .operand = {[SUM_PARTS_X] = {OPERAND_IN, "*"},
                [SUM_PARTS_OTHERS] = {OPERAND_IN | OPERAND_OPTIONAL | OPERAND_SAME_DTYPE, "??"},
                [SUM_PARTS_Y] = {OPERAND_OUT | OPERAND_ACCUMULATES, "*", DTYPES_F32}},
    .check = sum_parts_check,
    .flops = sum_parts_flops,
};
