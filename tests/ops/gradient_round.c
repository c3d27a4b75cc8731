/* Stochastic rounding of gradients.  The op is exact. */
#include <math.h>

#include "tests/ops/op_test.h"

static void exact_gradient_round(const struct op_call *call, double *const *value)
{
    const double *scalars = value[GRADIENT_ROUND_SCALARS];
    bool adds = call->attrs.accumulate != 0;
    uint32_t stream = ROUNDING_GRADIENT;
    stream += 4u * (uint32_t)scalars[SCALAR_MICRO_STEP];
    for (int64_t i = 0; i < op_elements(call, GRADIENT_ROUND_Y); i++) {
        float x = (float)value[GRADIENT_ROUND_X][i];
        uint32_t random = exact_random_of(call, scalars, i, stream);
        float sum = adds ? (float)value[GRADIENT_ROUND_Y][i] + x : x;
        value[GRADIENT_ROUND_Y][i] = (double)exact_bf16(sum, random);
    }
}

static void make_gradient_round(struct maker *maker)
{
    int64_t count = case_lean_elements(maker);
    case_tensor(maker, GRADIENT_ROUND_X, DTYPE_F32, count, 0);
    case_tensor(maker, GRADIENT_ROUND_Y, DTYPE_BF16, count, 0);
    case_scalars(maker, GRADIENT_ROUND_SCALARS);
    case_accumulate(maker, maker->index % 3 != 0 ? 1u << GRADIENT_ROUND_Y : 0u);
}

/* Plants NaN, infinity, and a value that becomes infinite only when it is rounded up. */
static void inputs_gradient_round(const struct check_case *check, double *const *value,
                                  struct random *random)
{
    static const double special[] = {(double)INFINITY, -(double)INFINITY, (double)NAN, -0.0,
                                     0x1p-149,         0x1.fffffep127};
    int64_t count = operand_elements(case_operand(check, GRADIENT_ROUND_X));
    for (size_t i = 0; i < sizeof special / sizeof special[0] && check->inputs == INPUTS_SPECIAL;
         i++)
        value[GRADIENT_ROUND_X][random_below(random, count)] = special[i];
}

const struct op_test test_gradient_round = {
    .shape = make_gradient_round,
    .bench = bench_wide,
    .inputs = inputs_gradient_round,
    .exact = exact_gradient_round,
    .has_many_variants = true,
    .dtypes = 1u << DTYPE_BF16,
};
