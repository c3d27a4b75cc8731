/* GELU, by erf and by tanh.  The terms are derived in tests/opcheck/bounds.md. */
#include <math.h>

#include "tests/ops/op_test.h"

#define SQRT_HALF 0.70710678118654752440
#define SQRT_2_OVER_PI 0.79788456080286535588
#define INV_SQRT_2PI 0.39894228040143267794
#define GELU_CUBIC 0.044715

static void gelu_slope_erf(double x, double *out_slope, double *out_term)
{
    double squash = erf(x * SQRT_HALF), density = INV_SQRT_2PI * exp(-0.5 * x * x);
    *out_slope = 0.5 * (1.0 + squash) + x * density;
    *out_term = sqrt(3.0) * (0.5 * (1.0 + fabs(squash)) + fabs(x) * density) + fabs(x) * density * (1.0 + x * x);
}

static void gelu_slope_tanh(double x, double *out_slope, double *out_term)
{
    double argument = SQRT_2_OVER_PI * (x + GELU_CUBIC * x * x * x), squash = tanh(argument);
    double inner = SQRT_2_OVER_PI * (1.0 + 3.0 * GELU_CUBIC * x * x), flat = 1.0 - squash * squash;
    *out_slope = 0.5 * (1.0 + squash) + 0.5 * x * flat * inner;
    *out_term = sqrt(3.0) * (0.5 * (1.0 + fabs(squash)) + 0.5 * fabs(x) * (1.0 + squash * squash) * inner) +
                4.0 * fabs(argument) * flat * (0.5 + fabs(x * squash) * inner);
}

static void ref_gelu_forward(const struct op_call *call, const struct ref_tensors *t)
{
    for (int64_t i = 0; i < op_elements(call, GELU_FORWARD_X); i++) {
        double x = t->value[GELU_FORWARD_X][i], squash, slope; /* slope: argument times derivative, for its rounding */
        if (call->attrs.gelu == GELU_ERF) {
            squash = erf(x * SQRT_HALF);
            slope = 2.0 * INV_SQRT_2PI * exp(-0.5 * x * x) * fabs(x);
        } else {
            double argument = SQRT_2_OVER_PI * (x + GELU_CUBIC * x * x * x);
            squash = tanh(argument);
            slope = 4.0 * (1.0 - squash * squash) * fabs(argument);
        }
        t->value[GELU_FORWARD_Y][i] = 0.5 * x * (1.0 + squash);
        t->term[GELU_FORWARD_Y][i] = 0.5 * fabs(x) * (sqrt(2.0) * (1.0 + fabs(squash)) + slope);
    }
}

static void ref_gelu_backward(const struct op_call *call, const struct ref_tensors *t)
{
    for (int64_t i = 0; i < op_elements(call, GELU_BACKWARD_X); i++) {
        double slope, term, dy = t->value[GELU_BACKWARD_DY][i];
        if (call->attrs.gelu == GELU_ERF)
            gelu_slope_erf(t->value[GELU_BACKWARD_X][i], &slope, &term);
        else
            gelu_slope_tanh(t->value[GELU_BACKWARD_X][i], &slope, &term);
        t->value[GELU_BACKWARD_DX][i] = dy * slope;
        t->term[GELU_BACKWARD_DX][i] = fabs(dy) * (term + fabs(slope));
    }
}

#define NAIVE_SQRT_HALF 0.70710678f
#define NAIVE_SQRT_2_OVER_PI 0.79788456f
#define NAIVE_INV_SQRT_2PI 0.39894228f
#define NAIVE_GELU_CUBIC 0.044715f

static bool gelu_is_erf(const struct op_call *call, enum naive_defect defect)
{
    return (call->attrs.gelu == GELU_ERF) != (defect == DEFECT_WRONG_KIND);
}

static float gelu_argument(float x, enum naive_defect defect)
{
    return NAIVE_SQRT_2_OVER_PI * (x + (defect == DEFECT_FORGET_SECOND ? 0.0f : NAIVE_GELU_CUBIC * x * x * x));
}

static void naive_gelu_forward(const struct op_call *call, double *const *value, enum naive_defect defect)
{
    for (int64_t i = 0; i < op_elements(call, GELU_FORWARD_X); i++) {
        float x = naive_at(value[GELU_FORWARD_X], i), y;
        if (defect == DEFECT_APPROXIMATE)
            y = x / (1.0f + expf(-1.702f * x));
        else if (defect == DEFECT_SHIFTED && x > 2.0f)
            y = x;
        else if (gelu_is_erf(call, defect))
            y = 0.5f * x * (1.0f + erff(x * NAIVE_SQRT_HALF));
        else
            y = 0.5f * x * (1.0f + tanhf(gelu_argument(x, defect)));
        value[GELU_FORWARD_Y][i] = (double)y;
    }
}

static void naive_gelu_backward(const struct op_call *call, double *const *value, enum naive_defect defect)
{
    for (int64_t i = 0; i < op_elements(call, GELU_BACKWARD_X); i++) {
        float x = naive_at(value[GELU_BACKWARD_X], i), dy = naive_at(value[GELU_BACKWARD_DY], i), slope, part;
        if (gelu_is_erf(call, defect)) {
            slope = 0.5f * (1.0f + erff(x * NAIVE_SQRT_HALF));
            part = x * NAIVE_INV_SQRT_2PI * expf(-0.5f * x * x);
        } else {
            float squash = tanhf(gelu_argument(x, defect));
            slope = 0.5f * (1.0f + squash);
            part =
                0.5f * x * (1.0f - squash * squash) * NAIVE_SQRT_2_OVER_PI * (1.0f + 3.0f * NAIVE_GELU_CUBIC * x * x);
        }
        slope += defect == DEFECT_FORGET_FIRST ? 0.0f : part;
        value[GELU_BACKWARD_DX][i] = (double)(defect == DEFECT_FORGET_SCALE ? slope : dy * slope);
    }
}

static void make_gelu_forward(struct maker *maker)
{
    case_attrs(maker)->gelu = maker->index % 2 != 0 ? GELU_TANH : GELU_ERF;
    case_tensor(maker, GELU_FORWARD_X, maker->dtype, case_size(maker, 129),
                maker->index % 40 > 37 ? 3072 : case_any_size(maker, 129));
}

static void make_gelu_backward(struct maker *maker)
{
    int64_t rows = case_size(maker, 129), columns = maker->index % 40 > 37 ? 3072 : case_any_size(maker, 129);
    case_attrs(maker)->gelu = maker->index % 2 != 0 ? GELU_TANH : GELU_ERF;
    case_tensor(maker, GELU_BACKWARD_DY, maker->dtype, rows, columns);
    case_tensor(maker, GELU_BACKWARD_X, maker->dtype, rows, columns);
}

static void inputs_gelu(const struct check_case *check, int32_t slot, double *x, struct random *random)
{
    inputs_scale(check, slot, x, check->inputs == INPUTS_LARGE ? 6.0 : check->inputs == INPUTS_SMALL ? 1e-3 : 2.0, 0.0);
    if (check->inputs == INPUTS_SPECIAL)
        x[random_below(random, operand_elements(case_operand(check, slot)))] = (double)NAN;
}

static void inputs_gelu_forward(const struct check_case *check, double *const *value, struct random *random)
{
    inputs_gelu(check, GELU_FORWARD_X, value[GELU_FORWARD_X], random);
    inputs_huge(check, GELU_FORWARD_X, value, HUGE_SCALE / 2.0);
}

static void inputs_gelu_backward(const struct check_case *check, double *const *value, struct random *random)
{
    inputs_gelu(check, GELU_BACKWARD_X, value[GELU_BACKWARD_X], random);
    inputs_huge(check, GELU_BACKWARD_DY, value, 2.0 * HUGE_SCALE); /* the slope is at most 1.13 */
}

const struct op_test test_gelu_forward = {
    .shape = make_gelu_forward,
    .bench = bench_wide,
    .inputs = inputs_gelu_forward,
    .ref = ref_gelu_forward,
    .naive = naive_gelu_forward,
    .has_few_inputs = true,
    .never_overflows = true,
    .defects = {DEFECT_WRONG_KIND, DEFECT_APPROXIMATE, DEFECT_SHIFTED, DEFECT_FORGET_SECOND},
};

const struct op_test test_gelu_backward = {
    .shape = make_gelu_backward,
    .bench = bench_wide,
    .inputs = inputs_gelu_backward,
    .ref = ref_gelu_backward,
    .naive = naive_gelu_backward,
    .defects = {DEFECT_WRONG_KIND, DEFECT_FORGET_FIRST, DEFECT_FORGET_SCALE, DEFECT_FORGET_SECOND},
};
