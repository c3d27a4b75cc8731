/* Fill, copy, fetch, store and wait, which have the same bits on every backend when they do not
 * accumulate. */
#include <math.h>

#include "tests/ops/op_test.h"

static void ref_fill(const struct op_call *call, const struct ref_tensors *t)
{
    for (int64_t i = 0; i < op_elements(call, FILL_Y); i++) {
        t->value[FILL_Y][i] = (double)call->attrs.value;
        t->term[FILL_Y][i] = REF_EXACT;
    }
}

static void ref_copy(const struct op_call *call, const struct ref_tensors *t)
{
    for (int64_t i = 0; i < op_elements(call, COPY_Y); i++) {
        bool adds = op_accumulates(call, COPY_Y); /* else the sign of a zero counts */
        t->value[COPY_Y][i] =
            adds ? t->value[COPY_Y][i] + t->value[COPY_X][i] : t->value[COPY_X][i];
        t->term[COPY_Y][i] = adds ? 0.0 : REF_EXACT;
    }
}

static void make_fill(struct maker *maker)
{
    case_attrs(maker)->value =
        (float)random_normal(&maker->random) * (maker->check->inputs == INPUTS_HUGE ? 1e5f : 1.0f);
    if (maker->check->inputs == INPUTS_SPECIAL)
        case_attrs(maker)->value = -0x1.8p-24f; /* halfway between two values of fp16 */
    case_tensor(maker, FILL_Y, maker->dtype, case_size(maker, 129), case_any_size(maker, 129));
}

/* Makes copies from the dtype to itself and to the others, and from those to it. */
static void make_copy(struct maker *maker)
{
    static const enum dtype dtypes[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16};
    int64_t rows = case_size(maker, 129),
            columns = maker->index % 4 == 0 ? 0 : case_any_size(maker, 129);
    enum dtype other = dtypes[maker->index / 2 % COUNT(dtypes)];
    bool to_other = maker->index / 6 % 2 != 0;
    case_tensor(maker, COPY_X, to_other ? maker->dtype : other, rows, columns);
    case_tensor(maker, COPY_Y, to_other ? other : maker->dtype, rows, columns);
    case_accumulate(maker, maker->index % 2 != 0 ? 1u << COPY_Y : 0u);
}

static void make_move(struct maker *maker)
{
    const int64_t rows = case_size(maker, 129),
                  columns = maker->index % 4 == 0 ? 0 : case_any_size(maker, 129);
    case_tensor(maker, FETCH_X, maker->dtype, rows, columns);
    case_tensor(maker, FETCH_Y, maker->dtype, rows, columns);
}

static void bench_copy(struct maker *maker)
{
    case_tensor(maker, COPY_X, maker->dtype, BENCH_ROWS, BENCH_CHANNELS);
    case_tensor(maker, COPY_Y, maker->dtype, BENCH_ROWS, BENCH_CHANNELS);
}

/* Plants NaN, infinity, a signed zero and the smallest values. */
static void inputs_copy(const struct check_case *check, double *const *value, struct random *random)
{
    static const double special[] = {(double)INFINITY, -(double)INFINITY, (double)NAN, -0.0,
                                     0x1p-24,          0x1p-25,           65519.0};
    int64_t count = operand_elements(case_operand(check, COPY_X));
    inputs_huge(check, COPY_X, value, 2.0 * HUGE_SCALE);
    for (size_t i = 0; i < sizeof special / sizeof special[0] && check->inputs == INPUTS_SPECIAL;
         i++)
        value[COPY_X][random_below(random, count)] = special[i];
}

const struct op_test test_fill = {
    .shape = make_fill,
    .bench = bench_plain,
    .ref = ref_fill,
    .is_exact_copy = true,
    .is_sum_of_products = true,
};

const struct op_test test_copy = {
    .shape = make_copy,
    .bench = bench_copy,
    .inputs = inputs_copy,
    .ref = ref_copy,
    .is_exact_copy = true,
    .has_many_variants = true,
    .is_sum_of_products = true,
};

/* A copy's oracle serves: the operands have the same indices. */
#define MOVE                                                                             \
    {                                                                                    \
        .shape = make_move, .bench = bench_copy, .inputs = inputs_copy, .ref = ref_copy, \
        .is_exact_copy = true, .is_sum_of_products = true,                               \
    }
const struct op_test test_fetch = MOVE;
const struct op_test test_store = MOVE;
const struct op_test test_exchange = MOVE; /* with itself */

/* Where no copy is in flight, wait leaves y as it is. */
static void ref_wait(const struct op_call *call, const struct ref_tensors *t)
{
    for (int64_t i = 0; i < op_elements(call, WAIT_Y); i++)
        t->term[WAIT_Y][i] = REF_EXACT;
}

const struct op_test test_wait = {
    .shape = make_move,
    .bench = bench_copy,
    .inputs = inputs_copy,
    .ref = ref_wait,
    .is_exact_copy = true,
};
