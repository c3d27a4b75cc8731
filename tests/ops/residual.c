/* The residual sum. */
#include "tests/ops/op_test.h"

static void ref_residual(const struct op_call *call, const struct ref_tensors *t)
{
    for (int64_t i = 0; i < op_elements(call, RESIDUAL_R); i++) {
        t->value[RESIDUAL_R][i] = t->value[RESIDUAL_X][i] + t->value[RESIDUAL_Y][i];
        t->term[RESIDUAL_R][i] = 0.0;
    }
}

static void make_residual(struct maker *maker)
{
    int64_t rows = case_size(maker, 129), columns = case_any_size(maker, 129);
    case_tensor(maker, RESIDUAL_X, maker->dtype, rows, columns);
    case_tensor(maker, RESIDUAL_Y, maker->dtype, rows, columns);
}

static void inputs_residual(const struct check_case *check, double *const *value,
                            struct random *random)
{
    (void)random;
    inputs_huge(check, RESIDUAL_X, value, HUGE_SCALE);
    inputs_huge(check, RESIDUAL_Y, value, HUGE_SCALE);
}

const struct op_test test_residual = {
    .shape = make_residual,
    .bench = bench_plain,
    .inputs = inputs_residual,
    .ref = ref_residual,
    .is_sum_of_products = true,
};
