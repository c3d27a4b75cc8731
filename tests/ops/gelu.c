/* GELU, by erf and by tanh, SwiGLU and GeGLU.  The terms are derived in tests/opcheck/bounds.md. */
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
    *out_term = sqrt(3.0) * (0.5 * (1.0 + fabs(squash)) + fabs(x) * density) +
                fabs(x) * density * (1.0 + x * x);
}

static void gelu_slope_tanh(double x, double *out_slope, double *out_term)
{
    double argument = SQRT_2_OVER_PI * (x + GELU_CUBIC * x * x * x), squash = tanh(argument);
    double inner = SQRT_2_OVER_PI * (1.0 + 3.0 * GELU_CUBIC * x * x), flat = 1.0 - squash * squash;
    *out_slope = 0.5 * (1.0 + squash) + 0.5 * x * flat * inner;
    *out_term =
        sqrt(3.0) * (0.5 * (1.0 + fabs(squash)) + 0.5 * fabs(x) * (1.0 + squash * squash) * inner) +
        4.0 * fabs(argument) * flat * (0.5 + fabs(x * squash) * inner);
}

static double ref_gelu(double x, enum gelu_kind kind, double *out_term)
{
    double squash, slope; /* slope: argument times derivative, for its rounding */
    if (kind == GELU_ERF) {
        squash = erf(x * SQRT_HALF);
        slope = 2.0 * INV_SQRT_2PI * exp(-0.5 * x * x) * fabs(x);
    } else {
        double argument = SQRT_2_OVER_PI * (x + GELU_CUBIC * x * x * x);
        squash = tanh(argument);
        slope = 4.0 * (1.0 - squash * squash) * fabs(argument);
    }
    *out_term = 0.5 * fabs(x) * (sqrt(2.0) * (1.0 + fabs(squash)) + slope);
    return 0.5 * x * (1.0 + squash);
}

static void ref_gelu_forward(const struct op_call *call, const struct ref_tensors *t)
{
    for (int64_t i = 0; i < op_elements(call, GELU_FORWARD_X); i++)
        t->value[GELU_FORWARD_Y][i] =
            ref_gelu(t->value[GELU_FORWARD_X][i], call->attrs.gelu, &t->term[GELU_FORWARD_Y][i]);
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

/* The first case of each activation in 16 bits has all values of the dtype. */
#define EVERY_SIDE 256

static bool has_every_value(int32_t index, enum dtype dtype)
{
    return index < 2 && dtype != DTYPE_F32;
}

static void make_gelu_forward(struct maker *maker)
{
    case_attrs(maker)->gelu = maker->index % 2 != 0 ? GELU_TANH : GELU_ERF;
    if (has_every_value(maker->index, maker->dtype))
        case_tensor(maker, GELU_FORWARD_X, maker->dtype, EVERY_SIDE, EVERY_SIDE);
    else
        case_tensor(maker, GELU_FORWARD_X, maker->dtype, case_size(maker, 129),
                    maker->index % 40 > 37 ? 3072 : case_any_size(maker, 129));
}

static void make_gelu_backward(struct maker *maker)
{
    int64_t rows = case_size(maker, 129),
            columns = maker->index % 40 > 37 ? 3072 : case_any_size(maker, 129);
    case_attrs(maker)->gelu = maker->index % 2 != 0 ? GELU_TANH : GELU_ERF;
    if (has_every_value(maker->index, maker->dtype))
        rows = columns = EVERY_SIDE;
    case_tensor(maker, GELU_BACKWARD_DY, maker->dtype, rows, columns);
    case_tensor(maker, GELU_BACKWARD_X, maker->dtype, rows, columns);
}

/* The cube of x is infinite in fp32 from 2^43 on; beyond this x^2 is, too, on some backends. */
#define EVERY_MAX 0x1p60

/* Infinities become NaN: the oracle's x erf(x) has no value for them. */
static void inputs_every_value(const struct check_case *check, int32_t slot, double *x)
{
    const enum dtype dtype = case_operand(check, slot)->dtype;
    if (!has_every_value(check->index, dtype))
        return;
    for (int32_t i = 0; i < EVERY_SIDE * EVERY_SIDE; i++) {
        x[i] = (double)(dtype == DTYPE_BF16 ? bf16_to_f32((uint16_t)i) : f16_to_f32((uint16_t)i));
        x[i] = isinf(x[i])              ? (double)NAN
               : fabs(x[i]) > EVERY_MAX ? copysign(EVERY_MAX, x[i])
                                        : x[i];
    }
}

static void inputs_gelu(const struct check_case *check, int32_t slot, double *x,
                        struct random *random)
{
    inputs_scale(check, slot, x,
                 check->inputs == INPUTS_LARGE   ? 6.0
                 : check->inputs == INPUTS_SMALL ? 1e-3
                                                 : 2.0,
                 0.0);
    if (check->inputs == INPUTS_SPECIAL)
        x[random_below(random, operand_elements(case_operand(check, slot)))] = (double)NAN;
}

static void inputs_gelu_forward(const struct check_case *check, double *const *value,
                                struct random *random)
{
    inputs_gelu(check, GELU_FORWARD_X, value[GELU_FORWARD_X], random);
    inputs_huge(check, GELU_FORWARD_X, value, HUGE_SCALE / 2.0);
    inputs_every_value(check, GELU_FORWARD_X, value[GELU_FORWARD_X]);
}

static void inputs_gelu_backward(const struct check_case *check, double *const *value,
                                 struct random *random)
{
    inputs_gelu(check, GELU_BACKWARD_X, value[GELU_BACKWARD_X], random);
    inputs_huge(check, GELU_BACKWARD_DY, value, 2.0 * HUGE_SCALE); /* the slope is at most 1.13 */
    inputs_every_value(check, GELU_BACKWARD_X, value[GELU_BACKWARD_X]);
}

const struct op_test test_gelu_forward = {
    .shape = make_gelu_forward,
    .bench = bench_wide,
    .inputs = inputs_gelu_forward,
    .ref = ref_gelu_forward,
    .has_few_inputs = true,
};

const struct op_test test_gelu_backward = {
    .shape = make_gelu_backward,
    .bench = bench_wide,
    .inputs = inputs_gelu_backward,
    .ref = ref_gelu_backward,
};

/* ---- swiglu: element i of y comes from the pair `at`, `at` + columns of x ---- */

static int64_t swiglu_at(int64_t i, int64_t columns)
{
    return i + i / columns * columns;
}

static void ref_swiglu_forward(const struct op_call *call, const struct ref_tensors *t)
{
    int64_t columns = op_columns(call, SWIGLU_FORWARD_Y);
    for (int64_t i = 0; i < op_elements(call, SWIGLU_FORWARD_Y); i++) {
        const double *pair = t->value[SWIGLU_FORWARD_X] + swiglu_at(i, columns);
        double a = pair[0], b = pair[columns], y = a / (1.0 + exp(-a)) * b, term;
        t->value[SWIGLU_FORWARD_Y][i] = y;
        t->term[SWIGLU_FORWARD_Y][i] = 2.0 * fabs(y) + 0x1p-104 * fabs(a * b);
        if (call->attrs.gate == GATE_GELU) {
            t->value[SWIGLU_FORWARD_Y][i] = y = ref_gelu(a, GELU_TANH, &term) * b;
            t->term[SWIGLU_FORWARD_Y][i] = fabs(y) + fabs(b) * term;
        }
    }
}

/* The gradients of geglu at element `at` of x. */
static void ref_geglu_gradients(const struct ref_tensors *t, double dy, int64_t at, int64_t columns)
{
    double a = t->value[SWIGLU_BACKWARD_X][at], b = t->value[SWIGLU_BACKWARD_X][at + columns];
    double slope, slope_term, term, gated = ref_gelu(a, GELU_TANH, &term);
    gelu_slope_tanh(a, &slope, &slope_term);
    t->value[SWIGLU_BACKWARD_DX][at] = dy * b * slope;
    t->value[SWIGLU_BACKWARD_DX][at + columns] = dy * gated;
    t->term[SWIGLU_BACKWARD_DX][at] = fabs(dy * b) * (slope_term + sqrt(2.0) * fabs(slope));
    t->term[SWIGLU_BACKWARD_DX][at + columns] = fabs(dy) * (term + fabs(gated));
}

static void ref_swiglu_backward(const struct op_call *call, const struct ref_tensors *t)
{
    int64_t columns = op_columns(call, SWIGLU_BACKWARD_DY);
    for (int64_t i = 0; i < op_elements(call, SWIGLU_BACKWARD_DY); i++) {
        int64_t at = swiglu_at(i, columns);
        double a = t->value[SWIGLU_BACKWARD_X][at], b = t->value[SWIGLU_BACKWARD_X][at + columns];
        double dy = t->value[SWIGLU_BACKWARD_DY][i], s = 1.0 / (1.0 + exp(-a)),
               rest = 1.0 / (1.0 + exp(a));
        t->value[SWIGLU_BACKWARD_DX][at] = dy * b * s * (1.0 + a * rest);
        t->value[SWIGLU_BACKWARD_DX][at + columns] = dy * a * s;
        t->term[SWIGLU_BACKWARD_DX][at] =
            fabs(dy * b) *
            (sqrt(5.0) * s * (1.0 + sqrt(5.0) * fabs(a) * rest) + 0x1p-104 * (1.0 + fabs(a)));
        t->term[SWIGLU_BACKWARD_DX][at + columns] = fabs(dy * a) * (sqrt(5.0) * s + 0x1p-104);
        if (call->attrs.gate == GATE_GELU)
            ref_geglu_gradients(t, dy, at, columns);
    }
}

static void make_swiglu_forward(struct maker *maker)
{
    case_attrs(maker)->gate = maker->index % 2 != 0 ? GATE_GELU : GATE_SILU;
    int64_t columns = maker->index % 40 > 37 ? 2048 : case_any_size(maker, 129);
    case_tensor(maker, SWIGLU_FORWARD_X, maker->dtype, case_size(maker, 129), 2 * columns);
}

static void make_swiglu_backward(struct maker *maker)
{
    case_attrs(maker)->gate = maker->index % 2 != 0 ? GATE_GELU : GATE_SILU;
    int64_t rows = case_size(maker, 129),
            columns = maker->index % 40 > 37 ? 2048 : case_any_size(maker, 129);
    case_tensor(maker, SWIGLU_BACKWARD_DY, maker->dtype, rows, columns);
    case_tensor(maker, SWIGLU_BACKWARD_X, maker->dtype, rows, 2 * columns);
}

static void inputs_swiglu_forward(const struct check_case *check, double *const *value,
                                  struct random *random)
{
    inputs_gelu(check, SWIGLU_FORWARD_X, value[SWIGLU_FORWARD_X], random);
    inputs_huge(check, SWIGLU_FORWARD_X, value, sqrt(HUGE_SCALE));
}

static void inputs_swiglu_backward(const struct check_case *check, double *const *value,
                                   struct random *random)
{
    inputs_gelu(check, SWIGLU_BACKWARD_X, value[SWIGLU_BACKWARD_X], random);
    inputs_huge(check, SWIGLU_BACKWARD_X, value, sqrt(HUGE_SCALE));
    inputs_huge(check, SWIGLU_BACKWARD_DY, value, sqrt(HUGE_SCALE));
}

const struct op_test test_swiglu_forward = {
    .shape = make_swiglu_forward,
    .bench = bench_wide,
    .inputs = inputs_swiglu_forward,
    .ref = ref_swiglu_forward,
};

const struct op_test test_swiglu_backward = {
    .shape = make_swiglu_backward,
    .bench = bench_wide,
    .bench_dims = {{SWIGLU_BACKWARD_DY, {BENCH_ROWS, BENCH_WIDE / 2}}},
    .inputs = inputs_swiglu_backward,
    .ref = ref_swiglu_backward,
};
