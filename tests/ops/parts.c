/* Sums of the parts of an update's gradients.  The op is exact. */
#include <math.h>

#include "tests/ops/op_test.h"

static void exact_sum_parts(const struct op_call *call, double *const *value)
{
    const int64_t count = op_elements(call, SUM_PARTS_X);
    const int64_t parts =
        value[SUM_PARTS_OTHERS] != NULL ? call->operand[SUM_PARTS_OTHERS].dims[0] + 1 : 1;
    const int64_t own = call->attrs.from;
    for (int64_t i = 0; i < count; i++) {
        float sum = call->attrs.accumulate != 0 ? (float)value[SUM_PARTS_Y][i] : -0.0f;
        for (int64_t p = 0; p < parts; p++)
            sum += (float)(p == own ? value[SUM_PARTS_X][i]
                                    : value[SUM_PARTS_OTHERS][(p - (p > own)) * count + i]);
        value[SUM_PARTS_Y][i] = (double)sum;
    }
}

static void make_sum_parts(struct maker *maker)
{
    const int64_t count = case_size(maker, 1500), others = random_below(&maker->random, 4);
    case_tensor(maker, SUM_PARTS_X, maker->dtype, count, 0);
    if (others > 0)
        case_tensor(maker, SUM_PARTS_OTHERS, maker->dtype, others, count);
    case_tensor(maker, SUM_PARTS_Y, DTYPE_F32, count, 0);
    case_attrs(maker)->from = (int32_t)random_below(&maker->random, others + 1);
    case_accumulate(maker, maker->index % 3 != 0 ? 1u << SUM_PARTS_Y : 0u);
}

static void bench_sum_parts(struct maker *maker)
{
    const int64_t count = (int64_t)BENCH_ROWS * BENCH_WIDE;
    case_tensor(maker, SUM_PARTS_X, maker->dtype, count, 0);
    case_tensor(maker, SUM_PARTS_OTHERS, maker->dtype, 1, count);
    case_tensor(maker, SUM_PARTS_Y, DTYPE_F32, count, 0);
    case_attrs(maker)->from = 0;
}

/* Plants infinity, a signed zero, and values whose sum depends on the order. */
static void inputs_sum_parts(const struct check_case *check, double *const *value,
                             struct random *random)
{
    static const double special[] = {(double)INFINITY, (double)NAN, -0.0,
                                     0x1p-24,          30000.0,     -30000.0};
    const int64_t count = operand_elements(case_operand(check, SUM_PARTS_X));
    for (size_t i = 0; i < sizeof special / sizeof special[0] && check->inputs == INPUTS_SPECIAL;
         i++)
        value[SUM_PARTS_X][random_below(random, count)] = special[i];
}

const struct op_test test_sum_parts = {
    .shape = make_sum_parts,
    .bench = bench_sum_parts,
    .inputs = inputs_sum_parts,
    .exact = exact_sum_parts,
    .has_many_variants = true,
};
