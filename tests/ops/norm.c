/* The norm of the gradients and the factor that clips them. */
#include <math.h>

#include "tests/ops/op_test.h"

static void ref_sum_of_squares(const struct op_call *call, const struct ref_tensors *t)
{
    int64_t count = op_elements(call, SUM_OF_SQUARES_X);
    double sum = 0.0;
    for (int64_t i = 0; i < count; i++)
        sum += t->value[SUM_OF_SQUARES_X][i] * t->value[SUM_OF_SQUARES_X][i];
    t->value[SUM_OF_SQUARES_PARTIAL][0] = sum;
    t->term[SUM_OF_SQUARES_PARTIAL][0] = sqrt((double)count) * sum;
}

static void ref_clip_factor(const struct op_call *call, const struct ref_tensors *t)
{
    double *scalars = t->value[CLIP_FACTOR_SCALARS], *term = t->term[CLIP_FACTOR_SCALARS];
    int64_t count = call->operand[CLIP_FACTOR_PARTIALS].dims[0];
    double sum = 0.0;
    for (int64_t i = 0; i < SCALAR_WORDS; i++)
        term[i] = REF_EXACT;
    for (int64_t i = 0; i < count; i++)
        sum += t->value[CLIP_FACTOR_PARTIALS][i];
    double unscale = scalars[SCALAR_UNSCALE], limit = (double)call->attrs.clip_max;
    double norm = sqrt(sum) * unscale;
    double ratio = limit / (norm + 1e-6);
    bool clips = limit != 0.0 && ratio < 1.0;
    scalars[SCALAR_GRAD_NORM] = norm;
    scalars[SCALAR_CLIP] = clips ? unscale * ratio : unscale;
    scalars[SCALAR_FOUND_INF] = isfinite(norm) ? 0.0 : 1.0;
    if (isfinite(norm))
        scalars[SCALAR_ADAM_STEP] += 1.0;
    /* The square root halves the sum's relative error.  Next: square root, product, sum, quotient,
     * product. */
    term[SCALAR_GRAD_NORM] = isfinite(norm) ? norm * (0.5 * sqrt((double)count) + 2.0) : REF_EXACT;
    term[SCALAR_CLIP] =
        isfinite(norm) ? scalars[SCALAR_CLIP] * (0.5 * sqrt((double)count) + 5.0) : REF_UNSPECIFIED;
    if (limit == 0.0 && isfinite(norm))
        term[SCALAR_CLIP] = REF_EXACT;
}

static void make_sum_of_squares(struct maker *maker)
{
    int64_t columns = maker->index % 10 == 9 ? 3072 : case_any_size(maker, 129);
    case_tensor(maker, SUM_OF_SQUARES_X, maker->dtype, case_size(maker, 129), columns);
}

static void make_clip_factor(struct maker *maker)
{
    static const float limits[] = {1.0f, 0.0f, 1e-5f, 1e6f, 0.5f};
    case_attrs(maker)->clip_max = limits[maker->index % COUNT(limits)];
    case_tensor(maker, CLIP_FACTOR_PARTIALS, DTYPE_F32,
                maker->index % 20 == 19 ? 148 : case_size(maker, 129), 0);
    case_scalars(maker, CLIP_FACTOR_SCALARS);
}

/* A square of 6.5 stays below the largest fp32 value, a sum of some does not. */
#define PARTIAL_HUGE 8e36

static void inputs_clip_factor(const struct check_case *check, double *const *value,
                               struct random *random)
{
    double *partial = value[CLIP_FACTOR_PARTIALS];
    int64_t count = case_operand(check, CLIP_FACTOR_PARTIALS)->dims[0];
    for (int64_t i = 0; i < count; i++)
        partial[i] = partial[i] * partial[i] *
                     (check->inputs == INPUTS_SMALL  ? 1e-9 / (double)count
                      : check->inputs == INPUTS_HUGE ? PARTIAL_HUGE
                                                     : 1.0);
    if (check->inputs == INPUTS_SPECIAL)
        partial[random_below(random, count)] =
            check->index % 2 != 0 ? (double)INFINITY : (double)NAN;
}

static void inputs_sum_of_squares(const struct check_case *check, double *const *value,
                                  struct random *random)
{
    (void)random;
    inputs_huge(check, SUM_OF_SQUARES_X, value, HUGE_SCALE);
}

const struct op_test test_sum_of_squares = {
    .shape = make_sum_of_squares,
    .bench = bench_wide,
    .inputs = inputs_sum_of_squares,
    .ref = ref_sum_of_squares,
    .is_sum_of_products = true,
};

const struct op_test test_clip_factor = {
    .shape = make_clip_factor,
    .bench = bench_plain,
    .inputs = inputs_clip_factor,
    .ref = ref_clip_factor,
    .dtypes = 1u << DTYPE_F32,
    .scalar = SCALAR_GRAD_NORM,
};
