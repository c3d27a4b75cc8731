/* The table of op declarations, and functions of a declaration and its operands.
 *
 * Costs follow convention: a multiply-add is 2, a causal product counts half of the full square,
 * and exp, tanh, a division or a square root is 1.  Counts are for forecasts and for rates in
 * reports; a backend may do more (recomputed scores) or less (skipped tiles).  They are doubles,
 * whose rounding above 2^53 does not matter here.
 */
#include "ops/op.h"

#define OP(KIND, name, operands) extern const struct op_declaration op_##name;
#include "ops/ops.def"
#undef OP

#define OP(KIND, name, operands) [OP_##KIND] = &op_##name,
static const struct op_declaration *const declarations[] = {
#include "ops/ops.def"
};
#undef OP

#define OPERAND(INDEX, name) [INDEX] = #name,
#define OP(KIND, name, operands) [OP_##KIND] = {operands},
static const char *const operand_names[OP_KIND_COUNT][OP_OPERANDS_MAX] = {
#include "ops/ops.def"
};
#undef OP
#undef OPERAND

const struct op_declaration *op_declaration(enum op_kind kind)
{
    assert((unsigned)kind < OP_KIND_COUNT);
    return declarations[kind];
}

const char *op_operand_name(enum op_kind kind, int32_t slot)
{
    assert(slot >= 0 && slot < op_declaration(kind)->operands);
    return operand_names[kind][slot];
}

int32_t op_result(enum op_kind kind)
{
    const struct op_declaration *declaration = op_declaration(kind);
    int32_t slot = 0;
    while (slot < declaration->operands &&
           (declaration->operand[slot].use & OPERAND_INOUT) != OPERAND_OUT)
        slot++;
    return slot < declaration->operands ? slot : -1;
}

enum operand_use op_direction(enum op_kind kind, const struct op_attrs *attrs, int32_t slot)
{
    const struct op_declaration *declaration = op_declaration(kind);
    assert(slot >= 0 && slot < declaration->operands);
    bool accumulates = (attrs->accumulate >> slot & 1u) != 0;
    return accumulates ? OPERAND_INOUT : declaration->operand[slot].use & OPERAND_INOUT;
}

static bool address_is(struct address a, struct address b)
{
    return a.space == b.space && a.segment == b.segment && a.offset_bytes == b.offset_bytes;
}

bool op_waits_for(const struct op_call *wait, const struct op_call *copy)
{
    return wait->kind == OP_WAIT && op_is_async_copy(copy->kind) &&
           wait->attrs.to == copy->attrs.to && wait->attrs.from == copy->attrs.from &&
           address_is(wait->operand[WAIT_X].at, copy->operand[FETCH_X].at) &&
           address_is(wait->operand[WAIT_Y].at, copy->operand[FETCH_Y].at);
}

int64_t operand_elements(const struct operand *operand)
{
    assert(operand->rank >= 0 && operand->rank <= OP_RANK_MAX);
    if (!operand->present)
        return 0;
    int64_t elements = 1;
    for (int32_t i = 0; i < operand->rank; i++)
        elements *= operand->dims[i];
    return elements;
}

size_t operand_bytes(const struct operand *operand)
{
    int64_t elements = operand_elements(operand);
    assert(elements >= 0);
    return (size_t)elements * dtype_size_bytes(operand->dtype);
}

double op_flops(const struct op_call *call)
{
    const struct op_declaration *declaration = op_declaration(call->kind);
    return declaration->flops != NULL
               ? declaration->flops(call)
               : declaration->cost.each *
                     (double)operand_elements(&call->operand[declaration->cost.slot]);
}

double op_bytes(const struct op_call *call)
{
    const struct op_declaration *declaration = op_declaration(call->kind);
    double bytes = 0.0;
    if (call->kind == OP_WAIT ||
        call->kind == OP_EXCHANGE) /* what moves between ranks has a rate of its own */
        return 0.0;
    for (int32_t slot = 0; slot < declaration->operands; slot++) {
        const struct operand *operand = &call->operand[slot];
        if (!operand->present)
            continue;
        const double rows = (double)operand->dims[0],
                     most = declaration->rows ? declaration->rows(call, slot) : rows;
        bool twice = op_direction(call->kind, &call->attrs, slot) == OPERAND_INOUT;
        if (op_operand_is(call->kind, slot, OPERAND_WRITTEN_FOR_GRADIENT))
            twice = call->attrs.gradient;
        bytes += (twice ? 2.0 : 1.0) * (double)operand_bytes(operand) *
                 (most < rows ? most / rows : 1.0);
    }
    return bytes;
}

size_t op_workspace_cap(const struct op_call *call)
{
    const struct op_declaration *declaration = op_declaration(call->kind);
    if (declaration->workspace_cap != NULL)
        return declaration->workspace_cap(call);
    return declaration->partials > 0
               ? declaration->partials * (size_t)op_columns(call, 0) * sizeof(float)
               : 0;
}
