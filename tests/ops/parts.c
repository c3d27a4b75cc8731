/* Sums of the parts of an update's gradients.  The op is exact. */
#include <math.h>

#include "tests/ops/op_test.h"

static void naive_sum_parts(const struct op_call *call, double *const *value, enum naive_defect defect)
{
    const int64_t count = op_elements(call, SUM_PARTS_X);
    const int64_t parts = value[SUM_PARTS_OTHERS] != NULL ? call->operand[SUM_PARTS_OTHERS].dims[0] + 1 : 1;
    const int64_t own = defect == DEFECT_WRONG_KIND ? (call->attrs.from + 1) % parts : call->attrs.from;
    for (int64_t i = 0; i < count; i++) {
        bool any = call->attrs.accumulate != 0 && defect != DEFECT_IGNORE_ACCUMULATE;
        float sum = any ? naive_at(value[SUM_PARTS_Y], i) : defect == DEFECT_ZERO_SIGN ? 0.0f : -0.0f;
        for (int64_t p = 0; p < parts; p++) {
            const int64_t row = p - (p > own), from = defect == DEFECT_SHIFTED ? (i + 1) % count : i;
            const float part =
                p == own ? naive_at(value[SUM_PARTS_X], i) : naive_at(value[SUM_PARTS_OTHERS], row * count + from);
            sum = naive_add(sum, part, defect);
        }
        naive_store(call, value, SUM_PARTS_Y, i, sum, defect);
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
static void inputs_sum_parts(const struct check_case *check, double *const *value, struct random *random)
{
    static const double special[] = {(double)INFINITY, (double)NAN, -0.0, 0x1p-24, 30000.0, -30000.0};
    const int64_t count = operand_elements(case_operand(check, SUM_PARTS_X));
    for (size_t i = 0; i < sizeof special / sizeof special[0] && check->inputs == INPUTS_SPECIAL; i++)
        value[SUM_PARTS_X][random_below(random, count)] = special[i];
}

const struct op_test test_sum_parts = {
    .shape = make_sum_parts,
    .bench = bench_sum_parts,
    .inputs = inputs_sum_parts,
    .naive = naive_sum_parts,
    .has_many_variants = true,
    .defects = {DEFECT_SHIFTED, DEFECT_IGNORE_ACCUMULATE, DEFECT_WRONG_KIND, DEFECT_BF16_SUM},
};
