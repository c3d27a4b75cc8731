/* Seeded defects: what the judge must catch, at least five per op.
 *
 * A mutant is the naive reference with one defect, encoded into an image as a backend would leave it, and judged by the
 * same function.  It counts as caught when one of the op's cases is rejected; the naive reference without a defect passes
 * all of them (opcheck.c runs that control).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/opcheck/opcheck.h"

#define DEFECTS_MAX 16

static const enum naive_defect common_defects[] = {DEFECT_SCALE,         DEFECT_ONE_ELEMENT, DEFECT_TAIL,
                                                   DEFECT_LOW_PRECISION, DEFECT_OVERRUN,     DEFECT_WRITES_INPUT};

/* Beside the common ones; the list ends at DEFECT_NONE. */
static const enum naive_defect own_defects[OP_KIND_COUNT][DEFECTS_MAX] = {
    [OP_EMBED_FORWARD] = {DEFECT_FORGET_BIAS, DEFECT_FORGET_POSITION, DEFECT_WRONG_ROW, DEFECT_SHIFTED},
    [OP_EMBED_BACKWARD] = {DEFECT_LAST_TERM, DEFECT_BF16_SUM, DEFECT_IGNORE_ACCUMULATE, DEFECT_WRONG_ROW,
                           DEFECT_PADDING},
    [OP_LAYERNORM_FORWARD] = {DEFECT_FORGET_BIAS, DEFECT_FORGET_GAIN, DEFECT_UNBIASED_VARIANCE, DEFECT_EPSILON,
                              DEFECT_ONE_PASS, DEFECT_BF16_SUM},
    [OP_LAYERNORM_BACKWARD] = {DEFECT_FORGET_GAIN, DEFECT_FORGET_FIRST, DEFECT_FORGET_SECOND, DEFECT_IGNORE_ACCUMULATE,
                               DEFECT_LAST_TERM, DEFECT_BF16_SUM},
    [OP_GEMM] = {DEFECT_LAST_TERM, DEFECT_BF16_SUM, DEFECT_IGNORE_ACCUMULATE, DEFECT_FORGET_BIAS, DEFECT_SWAPPED},
    [OP_BIAS_BACKWARD] = {DEFECT_LAST_TERM, DEFECT_BF16_SUM, DEFECT_IGNORE_ACCUMULATE},
    [OP_GELU_FORWARD] = {DEFECT_WRONG_KIND, DEFECT_APPROXIMATE, DEFECT_SHIFTED, DEFECT_FORGET_SECOND},
    [OP_GELU_BACKWARD] = {DEFECT_WRONG_KIND, DEFECT_FORGET_FIRST, DEFECT_FORGET_SCALE, DEFECT_FORGET_SECOND},
    [OP_ATTENTION_FORWARD] = {DEFECT_MASK_NARROW, DEFECT_MASK_WIDE, DEFECT_FORGET_SCALE, DEFECT_WRONG_HEAD,
                              DEFECT_WRONG_SITE, DEFECT_WRONG_SAMPLE, DEFECT_MASK_BEFORE, DEFECT_LAST_TERM,
                              DEFECT_BF16_SUM, DEFECT_MASK_INVERTED},
    [OP_ATTENTION_BACKWARD] = {DEFECT_MASK_NARROW, DEFECT_MASK_WIDE, DEFECT_FORGET_SCALE, DEFECT_WRONG_HEAD,
                               DEFECT_WRONG_SITE, DEFECT_WRONG_SAMPLE, DEFECT_FORGET_FIRST, DEFECT_FORGET_SECOND,
                               DEFECT_SWAPPED, DEFECT_BF16_SUM},
    [OP_ATTENTION_CACHED] = {DEFECT_MASK_NARROW, DEFECT_MASK_WIDE, DEFECT_FORGET_SCALE, DEFECT_WRONG_HEAD,
                             DEFECT_FORGET_POSITION, DEFECT_WRONG_ROW, DEFECT_LAST_TERM, DEFECT_BF16_SUM},
    [OP_DROPOUT] = {DEFECT_FORGET_SCALE, DEFECT_WRONG_SITE, DEFECT_WRONG_SAMPLE, DEFECT_MASK_INVERTED, DEFECT_SHIFTED},
    [OP_RESIDUAL] = {DEFECT_FORGET_BIAS, DEFECT_SWAPPED, DEFECT_SHIFTED},
    [OP_CROSS_ENTROPY] = {DEFECT_PADDING, DEFECT_FORGET_ONE_HOT, DEFECT_FORGET_SCALE, DEFECT_FORGET_SKIP,
                          DEFECT_LAST_TERM, DEFECT_BF16_SUM},
    [OP_LOSS_SUM] = {DEFECT_LAST_TERM, DEFECT_BF16_SUM, DEFECT_IGNORE_ACCUMULATE, DEFECT_SHIFTED},
    [OP_SUM_OF_SQUARES] = {DEFECT_LAST_TERM, DEFECT_BF16_SUM, DEFECT_WRONG_KIND, DEFECT_SWAPPED},
    [OP_CLIP_FACTOR] = {DEFECT_LAST_TERM, DEFECT_BF16_SUM, DEFECT_WRONG_KIND, DEFECT_FORGET_SCALE, DEFECT_EPSILON,
                        DEFECT_FORGET_LIMIT, DEFECT_FORGET_SKIP, DEFECT_FORGET_STEP},
    [OP_ADAMW] = {DEFECT_FORGET_SCALE, DEFECT_SWAPPED, DEFECT_COUPLED_DECAY, DEFECT_FORGET_CORRECTION, DEFECT_EPSILON,
                  DEFECT_FORGET_STEP, DEFECT_FORGET_SKIP},
    [OP_FILL] = {DEFECT_WRONG_KIND, DEFECT_SHIFTED},
    [OP_COPY] = {DEFECT_SHIFTED, DEFECT_IGNORE_ACCUMULATE},
};

static const char *defect_name(enum naive_defect defect)
{
    static const char *const names[] = {"none",
                                        "scale off by 0.2 %",
                                        "one element wrong",
                                        "tail not written",
                                        "result through bf16",
                                        "truncating conversion",
                                        "writes beyond the end",
                                        "writes an input",
                                        "last term dropped",
                                        "bf16 accumulator",
                                        "accumulate ignored",
                                        "bias forgotten",
                                        "gain forgotten",
                                        "first mean or delta forgotten",
                                        "second mean or inner factor forgotten",
                                        "position ignored",
                                        "scale forgotten",
                                        "skip ignored",
                                        "step ignored",
                                        "limit ignored",
                                        "bias correction forgotten",
                                        "one-hot forgotten",
                                        "wrong row",
                                        "wrong key-value head",
                                        "wrong dropout site",
                                        "sample base ignored",
                                        "wrong kind",
                                        "operands swapped",
                                        "cheaper formula",
                                        "unbiased variance",
                                        "epsilon omitted or misplaced",
                                        "one-pass variance",
                                        "mask too narrow",
                                        "mask too wide",
                                        "dropout before normalisation",
                                        "mask inverted",
                                        "padding counted or left",
                                        "coupled weight decay",
                                        "shifted by one"};
    _Static_assert(sizeof names / sizeof names[0] == DEFECT_COUNT, "every defect has a name");
    return names[defect];
}

bool mutant_is_output_defect(enum naive_defect defect)
{
    return defect >= DEFECT_SCALE && defect <= DEFECT_WRITES_INPUT;
}

/* The output that common defects hit, and the range of its elements: for scalars, the word that matters. */
static int32_t main_output(const struct op_call *call, int64_t *out_first, int64_t *out_count)
{
    int32_t slot = op_declaration(call->kind)->operands - 1;
    while (!call->operand[slot].present || op_direction(call->kind, &call->attrs, slot) == OPERAND_IN)
        slot--;
    *out_first = 0;
    *out_count = operand_elements(&call->operand[slot]);
    if (call->kind == OP_LOSS_SUM || call->kind == OP_CLIP_FACTOR) {
        *out_first = call->kind == OP_LOSS_SUM ? SCALAR_LOSS_SUM : SCALAR_GRAD_NORM;
        *out_count = 1;
    }
    return slot;
}

/* Where the first input lies; of an op without one, the band before the output. */
static size_t first_input(const struct op_call *call, size_t output_start)
{
    for (int32_t slot = 0; slot < op_declaration(call->kind)->operands; slot++) {
        if (call->operand[slot].present && op_direction(call->kind, &call->attrs, slot) == OPERAND_IN)
            return call->operand[slot].at.offset_bytes;
    }
    return output_start - 1;
}

/* What a defect of the first group does to a finished image. */
static void spoil(const struct check_case *check, enum naive_defect defect, uint8_t *image, const uint8_t *before)
{
    int64_t first = 0, count = 0;
    int32_t slot = main_output(&check->call, &first, &count);
    const struct operand *operand = &check->call.operand[slot];
    size_t start = operand->at.offset_bytes, size = dtype_size_bytes(operand->dtype);
    /* One element off by 0.2 % is within the rounding of bf16: there it is off by four units. */
    double u = dtype_unit_roundoff(image_dtype(check, slot, first));
    double factor = 1.0 + (defect == DEFECT_ONE_ELEMENT && 8.0 * u > 0.002 ? 8.0 * u : 0.002);
    for (int64_t i = first; i < first + count; i++) {
        double y = image_decode(check, slot, i, image);
        if (defect == DEFECT_SCALE || (defect == DEFECT_ONE_ELEMENT && i == first + count / 2))
            image_encode(check, slot, i, y * factor, false, image);
        if (defect == DEFECT_LOW_PRECISION)
            image_encode(check, slot, i, (double)bf16_to_f32(bf16_from_f32((float)y)), false, image);
    }
    if (defect == DEFECT_TAIL)
        memcpy(image + start + (size_t)(first + count - 1) * size, before + start + (size_t)(first + count - 1) * size,
               size);
    if (defect == DEFECT_OVERRUN)
        memset(image + start + operand_bytes(operand), 0, size);
    if (defect == DEFECT_WRITES_INPUT)
        image[first_input(&check->call, start)] ^= 1u;
}

static void mutant_image(const struct check_case *check, struct case_data *data, enum naive_defect defect)
{
    enum naive_defect inner = mutant_is_output_defect(defect) ? DEFECT_NONE : defect;
    for (int32_t slot = 0; slot < OP_OPERANDS_MAX; slot++) {
        if (data->naive[slot] != NULL)
            memcpy(data->naive[slot], data->initial[slot],
                   (size_t)operand_elements(&check->call.operand[slot]) * sizeof(double));
    }
    naive_run(&check->call, data->naive, inner);
    memcpy(data->after, data->before, check->image_bytes);
    for (int32_t slot = 0; slot < op_declaration(check->call.kind)->operands; slot++) {
        if (data->naive[slot] == NULL || op_direction(check->call.kind, &check->call.attrs, slot) == OPERAND_IN)
            continue;
        for (int64_t i = 0; i < operand_elements(&check->call.operand[slot]); i++)
            image_encode(check, slot, i, data->naive[slot][i], defect == DEFECT_TRUNCATE, data->after);
    }
    if (mutant_is_output_defect(defect))
        spoil(check, defect, data->after, data->before);
}

static bool mutant_caught(enum op_kind kind, enum dtype dtype, uint64_t seed, enum naive_defect defect)
{
    for (int32_t index = 0; index < cases_count(kind); index++) {
        struct check_case check;
        struct case_data data;
        struct verdict verdict;
        if (!case_make(kind, dtype, index, seed, &check))
            return false;
        if (op_flops(&check.call) > 4e6)
            continue; /* the small cases are enough, and quick */
        image_layout(&check, 0, 64);
        case_data_make(&check, &data);
        mutant_image(&check, &data, defect);
        judge(&check, &data, data.after, &verdict);
        case_data_free(&data);
        if (!verdict.passed)
            return true;
    }
    printf("SURVIVED %s %s: %s\n", op_declaration(kind)->name, dtype_name(dtype), defect_name(defect));
    return false;
}

/* Whether the op's main output is stored in 16 bits; sums, scalars and moments are not. */
static bool stores_halves(enum op_kind kind, enum dtype dtype, uint64_t seed)
{
    struct check_case check;
    int64_t first = 0, count = 0;
    if (!case_make(kind, dtype, 1, seed, &check))
        return false;
    int32_t slot = main_output(&check.call, &first, &count);
    return dtype_size_bytes(image_dtype(&check, slot, first)) == 2;
}

bool mutants_run(enum op_kind kind, enum dtype dtype, uint64_t seed, int32_t *caught, int32_t *planted)
{
    int32_t before = *planted - *caught;
    for (size_t i = 0; i < sizeof common_defects / sizeof common_defects[0]; i++) {
        enum naive_defect defect = common_defects[i];
        if (defect == DEFECT_LOW_PRECISION && dtype != DTYPE_F32 && stores_halves(kind, dtype, seed))
            defect = DEFECT_TRUNCATE;
        *caught += mutant_caught(kind, dtype, seed, defect);
        ++*planted;
    }
    for (int32_t i = 0; i < DEFECTS_MAX && own_defects[kind][i] != DEFECT_NONE; i++) {
        *caught += mutant_caught(kind, dtype, seed, own_defects[kind][i]);
        ++*planted;
    }
    return *planted - *caught == before;
}
