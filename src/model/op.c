/* The table of op declarations, and what follows from an operand alone.
 *
 * The table expands from ops.def, as the enumerations in op.h do, so that an op cannot have an index without a name or a
 * slot without a direction.  Shape rules are in op_infer.c, costs in op_cost.c; nothing here looks at an op's meaning.
 */
#include "model/op.h"

#include <assert.h>

#define IN OPERAND_IN
#define OUT OPERAND_OUT
#define INOUT OPERAND_INOUT
#define OPTIONAL 1
#define SAVED 2

/* clang-format off */
static const struct op_declaration declarations[] = {
#define OP_BEGIN(KIND, name_, text_) [OP_##KIND] = {.name = #name_, .text = text_, .operands = KIND##_OPERANDS, .operand = {
#define OPERAND(KIND, SLOT, name_, direction_, flags) \
    [KIND##_##SLOT] = {.name = name_, .direction = direction_, .optional = (flags) == OPTIONAL, .saved = (flags) == SAVED},
#define OP_END(KIND, name) }},
#include "model/ops.def"
#undef OP_BEGIN
#undef OPERAND
#undef OP_END
};
/* clang-format on */

_Static_assert(sizeof declarations / sizeof declarations[0] == OP_KIND_COUNT, "every op has a declaration");

#define OP_BEGIN(KIND, name, text) _Static_assert(KIND##_OPERANDS <= OP_OPERANDS_MAX, #name " has too many operands");
#define OPERAND(KIND, SLOT, name, direction, flags)
#define OP_END(KIND, name)
#include "model/ops.def"
#undef OP_BEGIN
#undef OPERAND
#undef OP_END

const struct op_declaration *op_declaration(enum op_kind kind)
{
    assert((unsigned)kind < OP_KIND_COUNT);
    return &declarations[kind];
}

enum operand_direction op_direction(enum op_kind kind, const struct op_attrs *attrs, int32_t slot)
{
    const struct op_declaration *declaration = op_declaration(kind);
    assert(slot >= 0 && slot < declaration->operands);
    enum operand_direction direction = declaration->operand[slot].direction;
    if (direction == OPERAND_OUT && (attrs->accumulate >> slot & 1u) != 0)
        return OPERAND_INOUT;
    return direction;
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
