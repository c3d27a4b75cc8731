/* Seeded defects that the judge must catch, at least five per op and dtype.
 *
 * A mutant is the naive reference with one defect, encoded into an image as a backend would leave it, and judged by the
 * same function.  The op's own defects are planted once, the defects of storing a result once in every output.  A
 * mutant is caught when the judge rejects one of the op's cases.  The naive reference without a defect passes all of
 * them; suite.c runs that control.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/opcheck/opcheck.h"

#define MUTANTS_MAX 96
#define FLOPS_MAX 2e7     /* small cases are enough, and fast */
#define DEFECT_SIZE 0.002 /* for DEFECT_SCALE and DEFECT_ONE_ELEMENT */
#define WHOLE_CALL (-1)

struct mutant {
    enum naive_defect defect;
    int32_t slot;          /* the output with the defect, or WHOLE_CALL */
    bool possible, caught; /* possible: it applies to at least one case */
};

struct brood {
    struct mutant mutant[MUTANTS_MAX];
    int32_t count;
};

/* The defects that are planted in every output. */
static const enum naive_defect output_defects[] = {DEFECT_SCALE,         DEFECT_ONE_ELEMENT, DEFECT_TAIL,
                                                   DEFECT_LOW_PRECISION, DEFECT_TRUNCATE,    DEFECT_SATURATE};

static const char *const defect_names[] = {
#define DEFECT(name, text) text,
#include "tests/ops/defects.def"
#undef DEFECT
};

/* The range of an output to spoil: all elements, or the word of the scalars block that the op computes. */
static void output_range(const struct op_call *call, int32_t slot, int64_t *out_first, int64_t *out_count)
{
    bool scalars = call->operand[slot].dtype == DTYPE_I32;
    *out_first = scalars ? op_test(call->kind)->scalar : 0;
    *out_count = scalars ? 1 : operand_elements(&call->operand[slot]);
}

/* Returns the offset of the first input; for an op without inputs, that of the last byte of the band before the
 * output. */
static size_t first_input(const struct op_call *call, size_t output_start)
{
    for (int32_t slot = 0; slot < op_declaration(call->kind)->operands; slot++) {
        if (call->operand[slot].present && op_direction(call->kind, &call->attrs, slot) == OPERAND_IN)
            return call->operand[slot].at.offset_bytes;
    }
    return output_start - 1;
}

/* Writes beyond the end of the last output, or into the first input. */
static void trespass(const struct check_case *check, enum naive_defect defect, uint8_t *image)
{
    int32_t slot = op_declaration(check->call.kind)->operands - 1;
    while (!case_is_output(check, slot))
        slot--;
    const struct operand *operand = &check->call.operand[slot];
    size_t start = operand->at.offset_bytes;
    if (defect == DEFECT_OVERRUN)
        memset(image + start + operand_bytes(operand), 0, dtype_size_bytes(operand->dtype));
    else
        image[first_input(&check->call, start)] ^= 1u;
}

/* Spoils one output of a finished image. */
static void spoil(const struct check_case *check, const struct case_data *data, const struct mutant *mutant)
{
    int64_t first = 0, count = 0;
    output_range(&check->call, mutant->slot, &first, &count);
    const struct operand *operand = &check->call.operand[mutant->slot];
    size_t size = dtype_size_bytes(operand->dtype),
           last = operand->at.offset_bytes + (size_t)(first + count - 1) * size;
    /* An error of 0.2 % in one element is within the rounding of bf16; there it is four units instead. */
    double u = dtype_unit_roundoff(image_dtype(check, mutant->slot, first)), part = DEFECT_SIZE;
    enum encoding encoding = mutant->defect == DEFECT_TRUNCATE   ? ENCODE_TRUNCATE
                             : mutant->defect == DEFECT_SATURATE ? ENCODE_SATURATE
                                                                 : ENCODE_NEAREST;
    if (mutant->defect == DEFECT_ONE_ELEMENT)
        part = fmax(part, 8.0 * u);
    for (int64_t i = first; i < first + count; i++) {
        double y = data->naive[mutant->slot][i];
        bool hit = mutant->defect == DEFECT_SCALE || (mutant->defect == DEFECT_ONE_ELEMENT && i == first + count / 2);
        if (hit && operand->dtype == DTYPE_U8)
            y += y < 255.0 ? 1.0 : -1.0;
        if (mutant->defect == DEFECT_LOW_PRECISION)
            y = ref_rounded(DTYPE_BF16, y);
        image_encode(check, mutant->slot, i, hit ? y * (1.0 + part) : y, encoding, data->after);
    }
    if (mutant->defect == DEFECT_TAIL)
        memcpy(data->after + last, data->before + last, size);
}

/* Returns true when the defect can occur: the output exists in this case, and its dtype is one that the defect
 * needs. */
static bool mutant_applies(const struct check_case *check, const struct mutant *mutant)
{
    if (mutant->slot == WHOLE_CALL)
        return true;
    if (!case_is_output(check, mutant->slot))
        return false;
    int64_t first = 0, count = 0;
    output_range(&check->call, mutant->slot, &first, &count);
    enum dtype dtype = image_dtype(check, mutant->slot, first);
    if (dtype == DTYPE_U8) /* codes have no precision to lose */
        return mutant->defect == DEFECT_ONE_ELEMENT || mutant->defect == DEFECT_TAIL;
    switch (mutant->defect) {
    case DEFECT_LOW_PRECISION:
        return dtype == DTYPE_F32;
    case DEFECT_TRUNCATE:
        return dtype_size_bytes(dtype) == 2;
    case DEFECT_SATURATE:
        return dtype == DTYPE_F16;
    default:
        return true;
    }
}

static bool mutant_caught(const struct check_case *check, struct case_data *data, const struct mutant *mutant)
{
    struct verdict verdict;
    bool trespasses = mutant->defect == DEFECT_OVERRUN || mutant->defect == DEFECT_WRITES_INPUT;
    if (mutant->slot != WHOLE_CALL || trespasses)
        memcpy(data->after, data->naive_image, check->image_bytes);
    else
        case_naive_image(check, data, mutant->defect);
    if (mutant->slot != WHOLE_CALL)
        spoil(check, data, mutant);
    if (trespasses)
        trespass(check, mutant->defect, data->after);
    judge(check, data, data->after, &verdict);
    return !verdict.passed;
}

static void mutant_add(struct brood *brood, enum naive_defect defect, int32_t slot)
{
    if (brood->count == MUTANTS_MAX)
        abort();
    brood->mutant[brood->count++] = (struct mutant){.defect = defect, .slot = slot};
}

/* Returns false when the op can never have this defect in the dtype: an exact op rounds its results before it stores
 * them. */
static bool output_defect_possible(enum op_kind kind, int32_t slot, enum naive_defect defect, enum dtype dtype)
{
    const struct op_test *test = op_test(kind);
    if (kind == OP_WAIT && defect == DEFECT_TAIL) /* it writes nothing */
        return false;
    if (defect != DEFECT_TRUNCATE && defect != DEFECT_SATURATE)
        return true;
    if (test->ref == NULL)
        return false;
    if (defect == DEFECT_SATURATE)
        return dtype == DTYPE_F16 && !test->never_overflows;
    return dtype == DTYPE_F32 || (test->unrounded >> slot & 1u) == 0;
}

/* Returns the variant of a defect for the dtype: defects of 16-bit storage need 16 bits, and the poor accumulator has
 * the dtype itself. */
static enum naive_defect own_defect(enum naive_defect defect, enum dtype dtype)
{
    bool needs_half = defect == DEFECT_DOUBLE_ROUNDING || defect == DEFECT_HALF_SCORES || defect == DEFECT_FROM_PARAM;
    if (needs_half && dtype == DTYPE_F32)
        return DEFECT_NONE;
    return defect == DEFECT_BF16_SUM && dtype == DTYPE_F16 ? DEFECT_F16_SUM : defect;
}

static void brood_make(enum op_kind kind, enum dtype dtype, struct brood *brood)
{
    const struct op_declaration *declaration = op_declaration(kind);
    brood->count = 0;
    mutant_add(brood, DEFECT_OVERRUN, WHOLE_CALL);
    mutant_add(brood, DEFECT_WRITES_INPUT, WHOLE_CALL);
    for (int32_t slot = 0; slot < declaration->operands; slot++) {
        for (size_t i = 0; i < sizeof output_defects / sizeof output_defects[0]; i++) {
            if (op_operand_is(kind, slot, OPERAND_OUT) && output_defect_possible(kind, slot, output_defects[i], dtype))
                mutant_add(brood, output_defects[i], slot);
        }
    }
    for (int32_t i = 0; i < DEFECTS_MAX && op_test(kind)->defects[i] != DEFECT_NONE; i++) {
        enum naive_defect defect = own_defect(op_test(kind)->defects[i], dtype);
        if (defect != DEFECT_NONE)
            mutant_add(brood, defect, WHOLE_CALL);
    }
}

/* Judges every mutant that is not yet caught on one case; returns the number of possible mutants that survive. */
static int32_t brood_judge(const struct check_case *check, struct brood *brood)
{
    struct case_data data;
    int32_t at_large = 0;
    case_values_make(check, &data);
    case_images_make(check, &data);
    for (int32_t i = 0; i < brood->count; i++) {
        struct mutant *mutant = &brood->mutant[i];
        if (!mutant->caught && mutant_applies(check, mutant))
            mutant->caught = mutant_caught(check, &data, mutant);
        at_large += mutant->possible && !mutant->caught;
    }
    case_data_free(&data);
    return at_large;
}

static void survivors_print(enum op_kind kind, enum dtype dtype, const struct brood *brood)
{
    const struct op_declaration *declaration = op_declaration(kind);
    for (int32_t i = 0; i < brood->count; i++) {
        const struct mutant *mutant = &brood->mutant[i];
        if (mutant->possible && !mutant->caught)
            printf("SURVIVED %s %s: %s%s%s\n", declaration->name, dtype_name(dtype), defect_names[mutant->defect],
                   mutant->slot == WHOLE_CALL ? "" : ", output ",
                   mutant->slot == WHOLE_CALL ? "" : op_operand_name(kind, mutant->slot));
    }
}

static bool small_case_make(enum op_kind kind, enum dtype dtype, int32_t index, uint64_t seed, struct check_case *out)
{
    return case_make(kind, dtype, index, seed, out) && op_flops(&out->call) <= FLOPS_MAX;
}

void mutants_run(enum op_kind kind, enum dtype dtype, uint64_t seed, int32_t *caught, int32_t *planted)
{
    struct brood brood;
    struct check_case check;
    brood_make(kind, dtype, &brood);
    for (int32_t index = 0; index < cases_count(kind, dtype); index++) {
        bool made = small_case_make(kind, dtype, index, seed, &check);
        for (int32_t i = 0; i < brood.count && made; i++)
            brood.mutant[i].possible = brood.mutant[i].possible || mutant_applies(&check, &brood.mutant[i]);
    }
    for (int32_t index = 0; index < cases_count(kind, dtype); index++) {
        if (!small_case_make(kind, dtype, index, seed, &check))
            continue;
        image_layout(&check, 0, 64);
        if (brood_judge(&check, &brood) == 0)
            break;
    }
    for (int32_t i = 0; i < brood.count; i++) {
        *planted += brood.mutant[i].possible;
        *caught += brood.mutant[i].caught;
    }
    survivors_print(kind, dtype, &brood);
}
