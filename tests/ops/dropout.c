/* Dropout.  A dropped element is 0, whatever x is. */
#include <math.h>

#include "tests/ops/op_test.h"

static void ref_dropout(const struct op_call *call, const struct ref_tensors *t)
{
    int64_t columns = call->operand[DROPOUT_X].dims[1];
    int64_t sample_elements = call->attrs.time * columns;
    for (int64_t i = 0; i < op_elements(call, DROPOUT_X); i++) {
        double factor =
            ref_dropout_factor(t->value[DROPOUT_SCALARS], call->attrs.dropout, call->attrs.site,
                               i / sample_elements, i % sample_elements);
        double y = factor == 0.0 ? 0.0 : t->value[DROPOUT_X][i] * factor;
        t->value[DROPOUT_Y][i] = y;
        t->term[DROPOUT_Y][i] = factor == 0.0 || factor == 1.0 ? REF_EXACT : fabs(y);
    }
}

static void make_dropout(struct maker *maker)
{
    static const float rates[] = {0.1f, 0.5f, 0.0f, 0.2f, 0.333f};
    int64_t time = case_size(maker, 129), samples = 1 + random_below(&maker->random, 3);
    case_attrs(maker)->time = (int32_t)time;
    case_attrs(maker)->dropout = rates[maker->index % COUNT(rates)];
    case_attrs(maker)->site = (int32_t)(1 + random_below(&maker->random, 60));
    case_tensor(maker, DROPOUT_X, maker->dtype, samples * time, case_any_size(maker, 129));
    case_scalars(maker, DROPOUT_SCALARS);
}

static void inputs_dropout(const struct check_case *check, double *const *value,
                           struct random *random)
{
    inputs_huge(check, DROPOUT_X, value, 2.0 * HUGE_SCALE);
    for (int64_t k = 0, count = operand_elements(case_operand(check, DROPOUT_X));
         check->inputs == INPUTS_SPECIAL && k < 1 + count / 8; k++)
        value[DROPOUT_X][random_below(random, count)] = k % 2 != 0 ? (double)NAN : (double)INFINITY;
}

const struct op_test test_dropout = {
    .shape = make_dropout,
    .bench = bench_plain,
    .inputs = inputs_dropout,
    .ref = ref_dropout,
    .has_few_inputs = true,
};
