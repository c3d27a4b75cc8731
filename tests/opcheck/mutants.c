/* Defects that the judge must catch, planted in every output of every op and dtype.
 *
 * A mutant is the oracle's image with one defect, judged by the same function as a backend's.  It
 * is caught when the judge rejects one of the op's cases.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/opcheck/opcheck.h"

#define FLOPS_MAX 2e7     /* small cases are enough, and fast */
#define DEFECT_SIZE 0.002 /* of SCALE and ONE_ELEMENT */
#define CASES_MAX 40

enum defect { SCALE, ONE_ELEMENT, TAIL, OVERRUN, WRITES_INPUT, DEFECTS };

static const char *const defect_names[DEFECTS] = {"scale off by 0.2 %", "one element wrong",
                                                  "tail not written", "writes beyond the end",
                                                  "writes an input"};

/* The range of an output to spoil: all elements, or the word of the scalars block that the op
 * computes. */
static void output_range(const struct op_call *call, int32_t slot, int64_t *out_first,
                         int64_t *out_count)
{
    bool scalars = call->operand[slot].dtype == DTYPE_I32;
    *out_first = scalars ? op_test(call->kind)->scalar : 0;
    *out_count = scalars ? 1 : operand_elements(&call->operand[slot]);
}

static void scaled(const struct check_case *check, const struct case_data *data, int32_t slot,
                   int64_t i)
{
    /* An error of 0.2 % in one element is within the rounding of bf16; eight units are not. */
    double y = data->ref.value[slot][i],
           part = fmax(DEFECT_SIZE, 8.0 * dtype_unit_roundoff(image_dtype(check, slot, i)));
    bool is_code = check->call.operand[slot].dtype == DTYPE_U8;
    image_encode(check, slot, i, is_code ? y + (y < 255.0 ? 1.0 : -1.0) : y * (1.0 + part),
                 data->after);
}

/* Spoils one output of the oracle's image. */
static void spoil(const struct check_case *check, const struct case_data *data, int32_t slot,
                  enum defect defect)
{
    const struct operand *operand = &check->call.operand[slot];
    const size_t size = dtype_size_bytes(operand->dtype), start = operand->at.offset_bytes;
    int64_t first = 0, count = 0;
    output_range(&check->call, slot, &first, &count);
    const size_t last = start + (size_t)(first + count - 1) * size;
    for (int64_t i = first; defect == SCALE && i < first + count; i++)
        scaled(check, data, slot, i);
    if (defect == ONE_ELEMENT)
        scaled(check, data, slot, first + count / 2);
    if (defect == TAIL)
        memcpy(data->after + last, data->before + last, size);
    if (defect == OVERRUN)
        memset(data->after + start + operand_bytes(operand), 0, size);
    for (int32_t in = 0; defect == WRITES_INPUT && in < op_declaration(check->call.kind)->operands;
         in++) {
        if (check->call.operand[in].present && !case_is_output(check, in))
            data->after[check->call.operand[in].at.offset_bytes] ^= 1u;
    }
}

static bool is_possible(enum op_kind kind, enum defect defect)
{
    if (defect == WRITES_INPUT)
        return op_declaration(kind)->operands > 1 && kind != OP_WAIT;
    return kind != OP_WAIT || defect != TAIL; /* it writes nothing */
}

/* Judges a mutant on the op's small cases, until one catches it; returns false when there is no
 * case with this output. */
static bool mutant_try(enum op_kind kind, enum dtype dtype, uint64_t seed, int32_t slot,
                       enum defect defect, bool *out_caught)
{
    bool found = false;
    for (int32_t index = 0, tried = 0;
         index < cases_count(kind, dtype) && tried < CASES_MAX && !*out_caught; index++) {
        struct check_case check;
        struct case_data data;
        struct verdict verdict;
        if (!case_make(kind, dtype, index, seed, &check) || op_flops(&check.call) > FLOPS_MAX ||
            !case_is_output(&check, slot))
            continue;
        found = true;
        tried++;
        image_layout(&check, 0, 64);
        case_values_make(&check, &data);
        case_images_make(&check, &data);
        memcpy(data.after, data.ideal, check.image_bytes);
        spoil(&check, &data, slot, defect);
        judge(&check, &data, data.after, &verdict);
        *out_caught = !verdict.passed;
        case_data_free(&data);
    }
    return found;
}

void mutants_run(enum op_kind kind, enum dtype dtype, uint64_t seed, int32_t *caught,
                 int32_t *planted)
{
    for (int32_t slot = 0; slot < op_declaration(kind)->operands; slot++) {
        for (int defect = 0; defect < DEFECTS; defect++) {
            bool is_caught = false;
            if (!op_operand_is(kind, slot, OPERAND_OUT) ||
                !is_possible(kind, (enum defect)defect) ||
                !mutant_try(kind, dtype, seed, slot, (enum defect)defect, &is_caught))
                continue;
            *planted += 1;
            *caught += is_caught;
            if (!is_caught)
                printf("SURVIVED %s %s: %s, output %s\n", op_declaration(kind)->name,
                       dtype_name(dtype), defect_names[defect], op_operand_name(kind, slot));
        }
    }
}
