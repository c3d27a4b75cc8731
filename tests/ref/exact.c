/* The bit-exact references: fill, copy without accumulation, and the ops of lean.c and muon.c.
 *
 * An op joins by a line in the table: when its result is exact, and how the bytes come about.  Conversions are those of
 * base/dtype.c, which round to nearest with integer arithmetic.
 */
#include "tests/ref/exact.h"

#include <assert.h>

#include "tests/ref/lean.h"

static uint8_t *bytes_of(const struct op_call *call, int32_t slot, uint8_t *memory)
{
    return memory + call->operand[slot].at.offset_bytes;
}

static bool always(const struct op_call *call)
{
    (void)call;
    return true;
}

static bool overwrites(const struct op_call *call)
{
    return call->attrs.accumulate == 0;
}

static void exact_fill(const struct op_call *call, uint8_t *memory)
{
    const struct operand *y = &call->operand[FILL_Y];
    size_t size = dtype_size_bytes(y->dtype);
    for (int64_t i = 0; i < operand_elements(y); i++)
        dtype_convert(bytes_of(call, FILL_Y, memory) + (size_t)i * size, y->dtype, &call->attrs.value, DTYPE_F32, 1);
}

static void exact_copy(const struct op_call *call, uint8_t *memory)
{
    const struct operand *x = &call->operand[COPY_X], *y = &call->operand[COPY_Y];
    dtype_convert(bytes_of(call, COPY_Y, memory), y->dtype, bytes_of(call, COPY_X, memory), x->dtype,
                  (size_t)operand_elements(y));
}

static const struct {
    bool (*applies)(const struct op_call *call);
    void (*run)(const struct op_call *call, uint8_t *memory);
} table[OP_KIND_COUNT] = {
    [OP_FILL] = {always, exact_fill},
    [OP_COPY] = {overwrites, exact_copy},
    [OP_ADAMW_LEAN] = {always, exact_by_elements},
    [OP_GRADIENT_ROUND] = {always, exact_by_elements},
    [OP_BLEND] = {always, exact_by_elements},
    [OP_MUON_MOMENTUM] = {always, exact_by_elements},
    [OP_MUON_NORMALIZE] = {always, exact_by_elements},
    [OP_MUON_STEP] = {always, exact_by_elements},
};

bool exact_defined(const struct op_call *call)
{
    assert((unsigned)call->kind < OP_KIND_COUNT);
    return table[call->kind].applies != NULL && table[call->kind].applies(call);
}

void exact_run(const struct op_call *call, uint8_t *memory)
{
    assert(exact_defined(call));
    table[call->kind].run(call, memory);
}
