/* The values that a case starts from, rounded to the dtype of each operand so that every
 * implementation gets the same.
 *
 * All values are standard normal unless an op needs others: ids and their sorted rows, statistics
 * that belong to x, probabilities that belong to q and k, moments that are not negative.  "huge"
 * scales inputs so that results pass the end of fp16's range, where infinity is the right answer;
 * the inputs themselves stay finite.
 */
#include <math.h>
#include <string.h>

#include "tests/opcheck/opcheck.h"

void inputs_rounded(const struct check_case *check, int32_t slot, double *values)
{
    for (int64_t i = 0, count = operand_elements(case_operand(check, slot)); i < count; i++)
        values[i] = image_rounded(image_dtype(check, slot, i), values[i]);
}

static void fill_floats(const struct check_case *check, int32_t slot, double *values,
                        struct random *random)
{
    for (int64_t i = 0, count = operand_elements(case_operand(check, slot)); i < count; i++)
        values[i] = check->inputs == INPUTS_INTEGER ? (double)(random_below(random, 9) - 4)
                                                    : random_normal(random);
}

void inputs_scale(const struct check_case *check, int32_t slot, double *values, double factor,
                  double offset)
{
    for (int64_t i = 0, count = operand_elements(case_operand(check, slot)); i < count; i++)
        values[i] = values[i] * factor + offset;
}

static void fill_scalars(const struct check_case *check, double *word, struct random *random)
{
    bool integer = check->inputs == INPUTS_INTEGER;
    for (int64_t i = 0; i < SCALAR_WORDS; i++)
        word[i] = (double)(1 + random_below(random, 1000));
    word[SCALAR_LEARNING_RATE] = 1e-2;
    word[SCALAR_LOSS_GRADIENT] = check->inputs == INPUTS_LARGE  ? 65536.0 / 3.0
                                 : check->inputs == INPUTS_HUGE ? 131072.0
                                                                : 1.0 / 48.0;
    word[SCALAR_UNSCALE] = check->inputs == INPUTS_LARGE ? 1.0 / 1024.0 : 0.75;
    word[SCALAR_MUON_MOMENTUM] = (double)0.95f;
    word[SCALAR_CLIP] = 0.1 + 0.8 * (double)random_word(random) * 0x1p-32;
    word[SCALAR_LOSS_SUM] = integer ? 17.0 : 3.0 * random_normal(random);
    word[SCALAR_FOUND_INF] = 0.0;
    word[SCALAR_SEED_LO] = (double)random_word(random);
    word[SCALAR_SEED_HI] = (double)(random_word(random) >> 8);
    word[SCALAR_POSITION] = 0.0;
}

#define HUGE_MAX 6e4

void inputs_huge(const struct check_case *check, int32_t slot, double *const *value, double factor)
{
    if (check->inputs == INPUTS_HUGE && value[slot] != NULL)
        inputs_scale(check, slot, value[slot], factor, 0.0);
}

/* Keeps inputs stored in fp16 finite: only results may overflow. */
static void keep_finite(const struct check_case *check, int32_t slot, double *values)
{
    for (int64_t i = 0, count = operand_elements(case_operand(check, slot)); i < count; i++)
        values[i] = fmax(-HUGE_MAX, fmin(HUGE_MAX, values[i]));
}

void inputs_fill(const struct check_case *check, double *const *value)
{
    const struct op_declaration *declaration = op_declaration(check->call.kind);
    struct random random = {.seed = ~check->seed};
    for (int32_t slot = 0; slot < declaration->operands; slot++) {
        if (value[slot] == NULL)
            continue;
        if (strcmp(op_operand_name(check->call.kind, slot), "scalars") == 0) {
            fill_scalars(check, value[slot], &random);
            inputs_rounded(check, slot, value[slot]);
        } else if (case_operand(check, slot)->dtype != DTYPE_I32 &&
                   op_direction(check->call.kind, &check->call.attrs, slot) != OPERAND_OUT) {
            fill_floats(check, slot, value[slot], &random);
        } else if (case_operand(check, slot)->dtype != DTYPE_I32) {
            inputs_scale(check, slot, value[slot], 0.0,
                         (double)NAN); /* the output has no value yet */
        }
    }
    if (op_test(check->call.kind)->inputs != NULL)
        op_test(check->call.kind)->inputs(check, value, &random);
    for (int32_t slot = 0; slot < declaration->operands; slot++) {
        if (value[slot] == NULL)
            continue;
        if (check->inputs == INPUTS_HUGE && case_operand(check, slot)->dtype == DTYPE_F16)
            keep_finite(check, slot, value[slot]);
        inputs_rounded(check, slot, value[slot]);
    }
}
