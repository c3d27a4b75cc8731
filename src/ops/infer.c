/*
 * Helpers for shape rules: they check operands and fill in results.  Each mismatch is logged in one line that names the
 * op and the operand.  The rules themselves are in the families' files.
 */
#include "ops/infer.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>

#include "base/log.h"
#include "base/size.h"

#define SHAPE_TEXT_MAX 128

static const char *op_name(const struct op_call *call)
{
    return op_declaration(call->kind)->name;
}

static const char *slot_name(const struct op_call *call, int32_t slot)
{
    return op_declaration(call->kind)->operand[slot].name;
}

/* Writes "[768,*]". */
static const char *shape_text(char text[static SHAPE_TEXT_MAX], int32_t rank, const int64_t *dims)
{
    size_t used = 0;
    text[used++] = '[';
    for (int32_t i = 0; i < rank && i < OP_RANK_MAX; i++) {
        const char *comma = i == 0 ? "" : ",";
        int n = dims[i] == ANY ? snprintf(text + used, SHAPE_TEXT_MAX - used, "%s*", comma)
                               : snprintf(text + used, SHAPE_TEXT_MAX - used, "%s%" PRId64, comma, dims[i]);
        assert(n > 0 && used + (size_t)n < SHAPE_TEXT_MAX - 2);
        used += (size_t)n;
    }
    text[used++] = ']';
    text[used] = '\0';
    return text;
}

struct infer_shape infer_shape_of(const struct operand *operand)
{
    struct infer_shape shape = {.rank = operand->rank};
    for (int32_t i = 0; i < operand->rank; i++)
        shape.dims[i] = operand->dims[i];
    return shape;
}

static bool shape_matches(const struct operand *operand, const struct infer_shape *expected)
{
    if (operand->rank != expected->rank)
        return false;
    for (int32_t i = 0; i < expected->rank; i++) {
        if (expected->dims[i] != ANY && operand->dims[i] != expected->dims[i])
            return false;
    }
    return true;
}

/* Checks that the rank is in bounds, that every dimension is positive, and that the byte count fits. */
static bool operand_sane(const struct op_call *call, int32_t slot)
{
    const struct operand *operand = &call->operand[slot];
    if ((unsigned)operand->dtype >= DTYPE_COUNT || operand->rank < 1 || operand->rank > OP_RANK_MAX) {
        log_error("%s: operand %s has dtype %d and rank %" PRId32 ", expected a dtype and a rank of 1 to %d",
                  op_name(call), slot_name(call, slot), (int)operand->dtype, operand->rank, OP_RANK_MAX);
        return false;
    }
    size_t bytes = dtype_size_bytes(operand->dtype);
    for (int32_t i = 0; i < operand->rank; i++) {
        bool fits = operand->dims[i] >= 1 && size_mul(bytes, (size_t)operand->dims[i], &bytes);
        if (!fits || bytes > INT64_MAX) {
            char text[SHAPE_TEXT_MAX];
            log_error("%s: operand %s is %s, expected positive sizes whose product fits", op_name(call),
                      slot_name(call, slot), shape_text(text, operand->rank, operand->dims));
            return false;
        }
    }
    return true;
}

static const char *dtypes_text(unsigned dtypes)
{
    switch (dtypes) {
    case DTYPES_FLOAT:
        return "float32, bfloat16 or float16";
    case DTYPES_F32:
        return "float32";
    case DTYPES_WORD:
        return "32-bit words (int32 or float32)";
    case DTYPES_BF16:
        return "bfloat16";
    case DTYPES_U8:
        return "uint8";
    case DTYPES_LEAN:
        return "float32 or bfloat16";
    case DTYPES_MOMENT:
        return "float32, bfloat16 or uint8";
    default:
        return "int32";
    }
}

bool infer_check(const struct op_call *call, int32_t slot, unsigned dtypes, struct infer_shape expected)
{
    const struct operand *operand = &call->operand[slot];
    if (!operand->present) {
        if (op_operand_is(call->kind, slot, OPERAND_OPTIONAL))
            return true;
        log_error("%s: operand %s is absent", op_name(call), slot_name(call, slot));
        return false;
    }
    if (!operand_sane(call, slot))
        return false;
    if ((dtypes >> operand->dtype & 1u) == 0) {
        log_error("%s: operand %s is %s, expected %s", op_name(call), slot_name(call, slot), dtype_name(operand->dtype),
                  dtypes_text(dtypes));
        return false;
    }
    if (!shape_matches(operand, &expected)) {
        char found[SHAPE_TEXT_MAX], wanted[SHAPE_TEXT_MAX];
        log_error("%s: operand %s is %s, expected %s", op_name(call), slot_name(call, slot),
                  shape_text(found, operand->rank, operand->dims), shape_text(wanted, expected.rank, expected.dims));
        return false;
    }
    return true;
}

bool infer_fill(struct op_call *call, int32_t slot, enum dtype dtype, unsigned dtypes, struct infer_shape shape)
{
    struct operand *operand = &call->operand[slot];
    if (operand->present)
        return infer_check(call, slot, dtypes, shape);
    if (op_accumulates(call, slot)) {
        log_error("%s: operand %s is absent, expected a tensor to accumulate into", op_name(call),
                  slot_name(call, slot));
        return false;
    }
    if (op_operand_is(call->kind, slot, OPERAND_OPTIONAL))
        return true;
    operand->present = true;
    operand->dtype = dtype;
    operand->rank = shape.rank;
    for (int32_t i = 0; i < shape.rank; i++)
        operand->dims[i] = shape.dims[i];
    return operand_sane(call, slot);
}

bool infer_float(const struct op_call *call, int32_t slot)
{
    const struct operand *operand = &call->operand[slot];
    struct infer_shape own = {.rank = 1, .dims = {ANY}};
    if (operand->present && operand->rank >= 1 && operand->rank <= OP_RANK_MAX)
        own = infer_shape_of(operand);
    return infer_check(call, slot, DTYPES_FLOAT, own);
}

bool infer_same_dtype(const struct op_call *call, int32_t first, int32_t second)
{
    const struct operand *a = &call->operand[first], *b = &call->operand[second];
    if (a->dtype == b->dtype)
        return true;
    log_error("%s: operand %s is %s, expected %s as operand %s", op_name(call), slot_name(call, second),
              dtype_name(b->dtype), dtype_name(a->dtype), slot_name(call, first));
    return false;
}

bool infer_scalars(const struct op_call *call, int32_t slot)
{
    return infer_check(call, slot, DTYPES_WORD, SHAPE1(SCALAR_WORDS));
}

bool infer_time(const struct op_call *call, int64_t rows)
{
    if (call->attrs.time >= 1 && rows % call->attrs.time == 0)
        return true;
    log_error("%s: time is %" PRId32 ", expected a divisor of the %" PRId64 " rows", op_name(call), call->attrs.time,
              rows);
    return false;
}

bool infer_probability(const struct op_call *call)
{
    float p = call->attrs.dropout;
    if (p >= 0.0f && p < 1.0f && dropout_threshold(p) < 65536u)
        return true;
    log_error("%s: dropout is %g, expected 0 <= p < 1", op_name(call), (double)p);
    return false;
}

bool infer_index_base(const struct op_call *call)
{
    if (call->attrs.index_base >= 0)
        return true;
    log_error("%s: index_base is %" PRId64 ", expected 0 or more", op_name(call), call->attrs.index_base);
    return false;
}

int64_t infer_rows(const struct op_call *call, int32_t slot)
{
    return call->operand[slot].dims[0];
}

int64_t infer_columns(const struct op_call *call, int32_t slot)
{
    return call->operand[slot].dims[1];
}

bool infer_like(struct op_call *call, int32_t in, int32_t out)
{
    if (!infer_float(call, in))
        return false;
    const struct operand *operand = &call->operand[in];
    return infer_fill(call, out, operand->dtype, DTYPES_FLOAT, infer_shape_of(operand));
}
