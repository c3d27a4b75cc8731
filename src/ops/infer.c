/* Shape rules: checks operands against their declarations, and fills in results.
 *
 * Each mismatch is logged in one line that names the op and the operand.  The declarations are in
 * the families' files.
 */
#include "ops/infer.h"

#include <ctype.h>
#include <stdarg.h>

#include "base/size.h"

#define SHAPE_TEXT_MAX 128
#define EXPECT_TEXT_MAX 512

bool infer_expect(bool holds, const struct op_call *call, const char *format, ...)
{
    char text[EXPECT_TEXT_MAX];
    va_list args;
    if (holds)
        return true;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return FAIL(false, "%s: %s", op_declaration(call->kind)->name, text);
}

/* Writes a shape such as "[768,*]", in which * is any size.  Returns `text`. */
static const char *shape_text(char text[static SHAPE_TEXT_MAX], int32_t rank, const int64_t *dims)
{
    size_t used = 0;
    text[used++] = '[';
    for (int32_t i = 0; i < rank && i < OP_RANK_MAX; i++) {
        const char *comma = i == 0 ? "" : ",";
        int n = dims[i] == ANY
                    ? snprintf(text + used, SHAPE_TEXT_MAX - used, "%s*", comma)
                    : snprintf(text + used, SHAPE_TEXT_MAX - used, "%s%" PRId64, comma, dims[i]);
        assert(n > 0 && used + (size_t)n < SHAPE_TEXT_MAX - 2);
        used += (size_t)n;
    }
    text[used++] = ']';
    text[used] = '\0';
    return text;
}

static bool shape_matches(const struct operand *operand, const struct infer_shape *expected)
{
    if (operand->rank != expected->rank)
        return false;
    for (int32_t i = 0; i < expected->rank; i++)
        if (expected->dims[i] != ANY && operand->dims[i] != expected->dims[i])
            return false;
    return true;
}

/* Returns true when the dtype exists, the rank is in bounds, every dimension is positive and the
 * byte count fits. */
static bool operand_sane(const struct op_call *call, int32_t slot)
{
    const struct operand *operand = &call->operand[slot];
    if (!infer_expect(
            (unsigned)operand->dtype < DTYPE_COUNT && operand->rank >= 1 &&
                operand->rank <= OP_RANK_MAX,
            call,
            "operand %s has dtype %d and rank %" PRId32 ", expected a dtype and a rank of 1 to %d",
            op_operand_name(call->kind, slot), (int)operand->dtype, operand->rank, OP_RANK_MAX))
        return false;
    size_t bytes = dtype_size_bytes(operand->dtype);
    bool fits = true;
    char text[SHAPE_TEXT_MAX];
    for (int32_t i = 0; i < operand->rank; i++)
        fits = fits && operand->dims[i] >= 1 && size_mul(bytes, (size_t)operand->dims[i], &bytes);
    return (fits && bytes <= INT64_MAX) ||
           infer_expect(false, call, "operand %s is %s, expected positive sizes whose product fits",
                        op_operand_name(call->kind, slot),
                        shape_text(text, operand->rank, operand->dims));
}

/* Writes "float32, bfloat16 or float16".  Returns `text`. */
static const char *dtypes_text(char text[static SHAPE_TEXT_MAX], unsigned dtypes)
{
    size_t used = 0;
    for (int dtype = 0; dtypes >> dtype != 0; dtype++) {
        const unsigned left = dtypes >> dtype >> 1;
        if ((dtypes >> dtype & 1u) != 0)
            used += (size_t)snprintf(text + used, SHAPE_TEXT_MAX - used, "%s%s",
                                     dtype_name((enum dtype)dtype),
                                     left == 0                  ? ""
                                     : (left & (left - 1)) == 0 ? " or "
                                                                : ", ");
    }
    return text;
}

bool infer_check(const struct op_call *call, int32_t slot, unsigned dtypes,
                 struct infer_shape expected)
{
    const struct operand *operand = &call->operand[slot];
    const char *name = op_operand_name(call->kind, slot);
    char found[SHAPE_TEXT_MAX], wanted[SHAPE_TEXT_MAX];
    if (!operand->present)
        return infer_expect(op_operand_is(call->kind, slot, OPERAND_OPTIONAL), call,
                            "operand %s is absent", name);
    return operand_sane(call, slot) &&
           ((dtypes >> operand->dtype & 1u) != 0 ||
            infer_expect(false, call, "operand %s is %s, expected %s", name,
                         dtype_name(operand->dtype), dtypes_text(wanted, dtypes))) &&
           (shape_matches(operand, &expected) ||
            infer_expect(false, call, "operand %s is %s, expected %s", name,
                         shape_text(found, operand->rank, operand->dims),
                         shape_text(wanted, expected.rank, expected.dims)));
}

static struct infer_shape operand_shape(const struct operand *operand)
{
    struct infer_shape shape = {.rank = operand->rank};
    memcpy(shape.dims, operand->dims, sizeof shape.dims);
    return shape;
}

/* Returns the declared shape of an operand, with ANY for sizes that are not known.  Sets `letters`
 * to the letters of its dimensions.  The declaration of gemm gives the shapes of untransposed
 * matrices, so this function reads the letters of a transposed one backwards. */
static struct infer_shape shape_expected(const struct op_call *call, int32_t slot,
                                         const struct infer_sizes *sizes,
                                         char letters[static OP_RANK_MAX])
{
    const char *text = op_declaration(call->kind)->operand[slot].shape;
    const bool turned = call->kind == OP_GEMM && ((slot == GEMM_A && call->attrs.transpose_a) ||
                                                  (slot == GEMM_B && call->attrs.transpose_b));
    struct infer_shape shape = {.rank = (int32_t)strlen(text)};
    if (text[0] == '.')
        return operand_shape(&call->operand[slot]);
    if (text[0] == '*')
        return sizes->whole.rank > 0 ? sizes->whole : operand_shape(&call->operand[slot]);
    for (int32_t i = 0; i < shape.rank; i++) {
        const char letter = letters[i] = text[turned ? shape.rank - 1 - i : i];
        const int64_t known = isupper((unsigned char)letter) ? sizes->letter[letter - 'A'] : 0;
        shape.dims[i] = known > 0                        ? known
                        : letter == 's'                  ? SCALAR_WORDS
                        : letter == '1' || letter == '2' ? letter - '0'
                                                         : ANY;
    }
    return shape;
}

static void sizes_learn(const struct operand *operand, const char letters[static OP_RANK_MAX],
                        struct infer_sizes *sizes)
{
    if (letters[0] == '\0' && sizes->whole.rank == 0)
        sizes->whole = operand_shape(operand);
    for (int32_t i = 0; i < OP_RANK_MAX; i++)
        if (isupper((unsigned char)letters[i]))
            sizes->letter[letters[i] - 'A'] = operand->dims[i];
}

/* Sets the dtype and shape of a result that the caller left absent.  An optional result stays
 * absent. */
static bool result_fill(struct op_call *call, int32_t slot, unsigned dtypes,
                        struct infer_shape shape)
{
    struct operand *operand = &call->operand[slot];
    if (!infer_expect(!op_accumulates(call, slot), call,
                      "operand %s is absent, expected a tensor to accumulate into",
                      op_operand_name(call->kind, slot)))
        return false;
    if (op_operand_is(call->kind, slot, OPERAND_OPTIONAL))
        return true;
    enum dtype dtype = call->operand[op_declaration(call->kind)->operand[slot].like].dtype;
    for (int other = DTYPE_F32; (dtypes >> dtype & 1u) == 0; other++)
        dtype = (enum dtype)other;
    *operand = (struct operand){.present = shape.rank > 0, .dtype = dtype, .rank = shape.rank};
    memcpy(operand->dims, shape.dims, sizeof operand->dims);
    return infer_check(call, slot, dtypes, shape);
}

static bool same_dtype(const struct op_call *call, int32_t first, int32_t second)
{
    const enum dtype wanted = call->operand[first].dtype, found = call->operand[second].dtype;
    return infer_expect(found == wanted, call, "operand %s is %s, expected %s as operand %s",
                        op_operand_name(call->kind, second), dtype_name(found), dtype_name(wanted),
                        op_operand_name(call->kind, first));
}

static bool slot_infer(struct op_call *call, int32_t slot, bool result, struct infer_sizes *sizes)
{
    const struct operand_declaration *declared = &op_declaration(call->kind)->operand[slot];
    const unsigned dtypes = declared->dtypes != 0 ? declared->dtypes : DTYPES_FLOAT;
    char letters[OP_RANK_MAX] = {0};
    const struct infer_shape shape = shape_expected(call, slot, sizes, letters);
    if (result && !call->operand[slot].present)
        return result_fill(call, slot, dtypes, shape);
    if (!infer_check(call, slot, dtypes, shape) ||
        ((declared->use & OPERAND_SAME_DTYPE) != 0 && call->operand[slot].present &&
         !same_dtype(call, declared->like, slot)))
        return false;
    if (call->operand[slot].present)
        sizes_learn(&call->operand[slot], letters, sizes);
    return true;
}

static bool operands_infer(struct op_call *call)
{
    const struct op_declaration *declaration = op_declaration(call->kind);
    struct infer_sizes sizes = {.whole.rank = 0};
    for (int pass = 0; pass < 2;
         pass++) { /* first the operands that the op reads, then its results */
        for (int32_t slot = 0; slot < declaration->operands; slot++) {
            const bool result = (declaration->operand[slot].use & OPERAND_INOUT) == OPERAND_OUT;
            if (result == (pass == 1) && !slot_infer(call, slot, result, &sizes))
                return false;
        }
        if (pass == 0 && declaration->check != NULL && !declaration->check(call, &sizes))
            return false;
    }
    return true;
}

bool op_infer(struct op_call *call)
{
    uint32_t allowed = 0;
    for (int32_t slot = 0; slot < op_declaration(call->kind)->operands; slot++)
        allowed |= (uint32_t)op_operand_is(call->kind, slot, OPERAND_ACCUMULATES) << slot;
    return infer_expect((call->attrs.accumulate & ~allowed) == 0, call,
                        "accumulate is 0x%" PRIx32 ", expected only bits of 0x%" PRIx32,
                        call->attrs.accumulate, allowed) &&
           operands_infer(call);
}

bool infer_time(const struct op_call *call, int32_t slot)
{
    const int64_t rows = call->operand[slot].dims[0];
    return infer_expect(call->attrs.time >= 1 && rows % call->attrs.time == 0, call,
                        "time is %" PRId32 ", expected a divisor of the %" PRId64 " rows",
                        call->attrs.time, rows);
}

bool infer_probability(const struct op_call *call)
{
    const float p = call->attrs.dropout;
    return infer_expect(p >= 0.0f && p < 1.0f && dropout_threshold(p) < 65536u, call,
                        "dropout is %g, expected 0 <= p < 1", (double)p);
}

bool infer_index_base(const struct op_call *call, struct infer_sizes *sizes)
{
    (void)sizes;
    return infer_expect(call->attrs.index_base >= 0, call,
                        "index_base is %" PRId64 ", expected 0 or more", call->attrs.index_base);
}
