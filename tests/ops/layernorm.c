/* Layernorm, and RMSNorm: the same without a mean, a bias or, in some cases, a gain.  The first
 * operands of both have the same numbers.  The oracle's terms are derived in
 * tests/opcheck/bounds.md; a comment names the stage that each line covers. */
#include <math.h>

#include "tests/ops/op_test.h"

#define ULP 0x1p-24

/* Returns element c of an operand, or `otherwise` if it is absent. */
static double element(const double *values, int64_t c, double otherwise)
{
    return values != NULL ? values[c] : otherwise;
}

/* Returns element c of the gain with its offset. */
static double gain_at(const struct op_call *call, const double *gain, int64_t c)
{
    return gain != NULL ? gain[c] + (double)call->attrs.gain_offset : 1.0;
}

static void layernorm_forward_row(const struct op_call *call, const struct ref_tensors *t,
                                  int64_t n)
{
    int64_t channels = call->operand[LAYERNORM_FORWARD_X].dims[1];
    const double *x = t->value[LAYERNORM_FORWARD_X] + n * channels,
                 *gain = t->value[LAYERNORM_FORWARD_GAIN];
    const double *bias = t->value[LAYERNORM_FORWARD_BIAS];
    double count = (double)channels, mean = 0.0, size = 0.0, variance = 0.0,
           epsilon = (double)call->attrs.epsilon;
    for (int64_t c = 0; t->value[LAYERNORM_FORWARD_MEAN] != NULL && c < channels; c++) {
        mean += x[c] / count;
        size += fabs(x[c]) / count;
    }
    for (int64_t c = 0; c < channels; c++)
        variance += (x[c] - mean) * (x[c] - mean) / count;
    double rstd = 1.0 / sqrt(variance + epsilon);
    /* The mean is a sum of C terms; its error moves the variance to second order only. */
    double mean_term = sqrt(count) * size, mean_error = 8.0 * ULP * mean_term;
    double rstd_term = 0.5 * (sqrt(count) + 2.0) * variance * rstd * rstd + 2.0 +
                       0.5 * mean_error * mean_error * rstd * rstd / (8.0 * ULP);
    if (t->value[LAYERNORM_FORWARD_MEAN] != NULL) {
        t->value[LAYERNORM_FORWARD_MEAN][n] = mean;
        t->term[LAYERNORM_FORWARD_MEAN][n] = mean_term;
    }
    t->value[LAYERNORM_FORWARD_RSTD][n] = rstd;
    t->term[LAYERNORM_FORWARD_RSTD][n] = rstd * rstd_term;
    for (int64_t c = 0; c < channels; c++) {
        double g = gain_at(call, gain, c), scaled = (x[c] - mean) * rstd * g,
               shift = element(bias, c, 0.0);
        t->value[LAYERNORM_FORWARD_Y][n * channels + c] = scaled + shift;
        t->term[LAYERNORM_FORWARD_Y][n * channels + c] = fabs(g) * rstd * mean_term +
                                                         fabs(scaled) * rstd_term +
                                                         sqrt(3.0) * (fabs(scaled) + fabs(shift));
    }
}

static void layernorm_backward_row(const struct op_call *call, const struct ref_tensors *t,
                                   int64_t n)
{
    int64_t channels = call->operand[LAYERNORM_BACKWARD_X].dims[1];
    const double *x = t->value[LAYERNORM_BACKWARD_X] + n * channels,
                 *dy = t->value[LAYERNORM_BACKWARD_DY] + n * channels;
    const double *gain = t->value[LAYERNORM_BACKWARD_GAIN];
    double mean = element(t->value[LAYERNORM_BACKWARD_MEAN], n, 0.0),
           rstd = t->value[LAYERNORM_BACKWARD_RSTD][n];
    bool has_mean = t->value[LAYERNORM_BACKWARD_MEAN] != NULL;
    double count = (double)channels, first = 0.0, second = 0.0, first_size = 0.0, second_size = 0.0;
    for (int64_t c = 0; c < channels; c++) {
        double g = dy[c] * gain_at(call, gain, c), xh = (x[c] - mean) * rstd;
        first += has_mean ? g / count : 0.0;
        second += g * xh / count;
        first_size += has_mean ? fabs(g) / count : 0.0;
        second_size += fabs(g * xh) / count;
    }
    for (int64_t c = 0; c < channels; c++) {
        double g = dy[c] * gain_at(call, gain, c), xh = (x[c] - mean) * rstd;
        double old = ref_before(call, t, LAYERNORM_BACKWARD_DX, n * channels + c);
        t->value[LAYERNORM_BACKWARD_DX][n * channels + c] = old + rstd * (g - first - xh * second);
        t->term[LAYERNORM_BACKWARD_DX][n * channels + c] =
            fabs(old) + fabs(rstd) * (sqrt(count) * (first_size + fabs(xh) * second_size) +
                                      sqrt(4.0) * (fabs(g) + fabs(first) + fabs(xh * second)));
    }
}

static void layernorm_backward_column(const struct op_call *call, const struct ref_tensors *t,
                                      int64_t c)
{
    int64_t rows = call->operand[LAYERNORM_BACKWARD_X].dims[0],
            channels = call->operand[LAYERNORM_BACKWARD_X].dims[1];
    bool has_bias = t->value[LAYERNORM_BACKWARD_DBIAS] != NULL;
    double gain_sum = ref_before(call, t, LAYERNORM_BACKWARD_DGAIN, c), gain_size = fabs(gain_sum);
    double bias_sum = has_bias ? ref_before(call, t, LAYERNORM_BACKWARD_DBIAS, c) : 0.0,
           bias_size = fabs(bias_sum);
    for (int64_t n = 0; n < rows; n++) {
        double dy = t->value[LAYERNORM_BACKWARD_DY][n * channels + c];
        double mean = element(t->value[LAYERNORM_BACKWARD_MEAN], n, 0.0);
        double xh = (t->value[LAYERNORM_BACKWARD_X][n * channels + c] - mean) *
                    t->value[LAYERNORM_BACKWARD_RSTD][n];
        gain_sum += dy * xh;
        gain_size += fabs(dy * xh);
        bias_sum += dy;
        bias_size += fabs(dy);
    }
    t->value[LAYERNORM_BACKWARD_DGAIN][c] = gain_sum;
    t->term[LAYERNORM_BACKWARD_DGAIN][c] = sqrt((double)rows) * gain_size;
    if (has_bias) {
        t->value[LAYERNORM_BACKWARD_DBIAS][c] = bias_sum;
        t->term[LAYERNORM_BACKWARD_DBIAS][c] = sqrt((double)rows) * bias_size;
    }
}

static void ref_layernorm_forward(const struct op_call *call, const struct ref_tensors *t)
{
    for (int64_t n = 0; n < call->operand[LAYERNORM_FORWARD_X].dims[0]; n++)
        layernorm_forward_row(call, t, n);
}

static void ref_layernorm_backward(const struct op_call *call, const struct ref_tensors *t)
{
    for (int64_t n = 0; n < call->operand[LAYERNORM_BACKWARD_X].dims[0]; n++)
        layernorm_backward_row(call, t, n);
    for (int64_t c = 0; c < op_elements(call, LAYERNORM_BACKWARD_DGAIN); c++)
        layernorm_backward_column(call, t, c);
}

/* Makes an optional operand of two cases in three. */
static void make_vector(struct maker *maker, int32_t slot, int64_t channels)
{
    if (maker->index % 3 != 0)
        case_tensor(maker, slot, maker->kept, channels, 0);
}

static void make_offset(struct maker *maker)
{
    const enum op_kind kind = maker->check->call.kind;
    if (kind == OP_RMSNORM_FORWARD || kind == OP_RMSNORM_BACKWARD)
        case_attrs(maker)->gain_offset = maker->index % 4 < 2 ? 1.0f : 0.0f;
}

static void make_norm_forward(struct maker *maker)
{
    bool real = maker->index % 40 == 39;
    int64_t rows = case_any_size(maker, 65), channels = real ? 768 : case_size(maker, 129);
    case_attrs(maker)->epsilon = 1e-5f;
    make_offset(maker);
    case_tensor(maker, LAYERNORM_FORWARD_X, maker->dtype, rows, channels);
    make_vector(maker, LAYERNORM_FORWARD_GAIN, channels);
}

static void make_layernorm_forward(struct maker *maker)
{
    make_norm_forward(maker);
    int64_t channels = case_operand(maker->check, LAYERNORM_FORWARD_X)->dims[1];
    case_tensor(maker, LAYERNORM_FORWARD_GAIN, maker->kept, channels, 0);
    make_vector(maker, LAYERNORM_FORWARD_BIAS, channels);
}

/* `last` is the last of the results, which may be absent. */
static void make_norm_backward(struct maker *maker, int32_t last)
{
    bool real = maker->index % 40 == 39;
    int64_t rows = case_any_size(maker, 129), channels = real ? 768 : case_size(maker, 129);
    make_offset(maker);
    case_tensor(maker, LAYERNORM_BACKWARD_DY, maker->dtype, rows, channels);
    case_tensor(maker, LAYERNORM_BACKWARD_X, maker->dtype, rows, channels);
    make_vector(maker, LAYERNORM_BACKWARD_GAIN, channels);
    case_tensor(maker, LAYERNORM_BACKWARD_RSTD, DTYPE_F32, rows, 0);
    make_vector(maker, last, channels);
    uint32_t mask = (uint32_t)(maker->index / 2 % 8) << LAYERNORM_BACKWARD_DX & ((2u << last) - 1u);
    case_accumulate(maker, maker->index % 3 != 0 ? mask : mask & ~(1u << last));
}

static void make_rmsnorm_backward(struct maker *maker)
{
    make_norm_backward(maker, RMSNORM_BACKWARD_DGAIN);
}

static void make_layernorm_backward(struct maker *maker)
{
    make_norm_backward(maker, LAYERNORM_BACKWARD_DBIAS);
    const struct operand *x = case_operand(maker->check, LAYERNORM_BACKWARD_X);
    case_tensor(maker, LAYERNORM_BACKWARD_GAIN, maker->kept, x->dims[1], 0);
    case_tensor(maker, LAYERNORM_BACKWARD_MEAN, DTYPE_F32, x->dims[0], 0);
}

static void inputs_layernorm_x(const struct check_case *check, int32_t slot, double *x)
{
    if (check->inputs == INPUTS_LARGE)
        inputs_scale(check, slot, x, 1.0, 30.0);
    if (check->inputs == INPUTS_SMALL)
        inputs_scale(check, slot, x, 1e-2, 0.0);
    inputs_rounded(check, slot, x);
}

static void inputs_layernorm_forward(const struct check_case *check, double *const *value,
                                     struct random *random)
{
    (void)random;
    inputs_layernorm_x(check, LAYERNORM_FORWARD_X, value[LAYERNORM_FORWARD_X]);
    inputs_huge(check, LAYERNORM_FORWARD_GAIN, value, HUGE_SCALE);
}

static void inputs_layernorm_backward(const struct check_case *check, double *const *value,
                                      struct random *random)
{
    int64_t channels = case_operand(check, LAYERNORM_BACKWARD_X)->dims[1];
    (void)random;
    inputs_layernorm_x(check, LAYERNORM_BACKWARD_X, value[LAYERNORM_BACKWARD_X]);
    inputs_huge(check, LAYERNORM_BACKWARD_DY, value, HUGE_SCALE);
    for (int64_t n = 0; n < case_operand(check, LAYERNORM_BACKWARD_X)->dims[0]; n++) {
        const double *x = value[LAYERNORM_BACKWARD_X] + n * channels;
        double mean = 0.0, variance = 0.0;
        for (int64_t c = 0; value[LAYERNORM_BACKWARD_MEAN] != NULL && c < channels; c++)
            mean += x[c] / (double)channels;
        for (int64_t c = 0; c < channels; c++)
            variance += (x[c] - mean) * (x[c] - mean) / (double)channels;
        if (value[LAYERNORM_BACKWARD_MEAN] != NULL)
            value[LAYERNORM_BACKWARD_MEAN][n] = mean;
        value[LAYERNORM_BACKWARD_RSTD][n] = 1.0 / sqrt(variance + 1e-5);
    }
}

/* The elements of a row share the errors of its statistics, unless rounding to 16 bits hides them.
 */
static double forward_shared_by(const struct op_call *call, int32_t slot)
{
    return slot == LAYERNORM_FORWARD_Y ? judge_row(call, slot) : 1.0;
}

static double backward_shared_by(const struct op_call *call, int32_t slot)
{
    return slot == LAYERNORM_BACKWARD_DX ? judge_row(call, slot) : 1.0;
}

const struct op_test test_layernorm_forward = {
    .shape = make_layernorm_forward,
    .bench = bench_plain,
    .inputs = inputs_layernorm_forward,
    .ref = ref_layernorm_forward,
    .shared_by = forward_shared_by,
};

const struct op_test test_layernorm_backward = {
    .shape = make_layernorm_backward,
    .bench = bench_plain,
    .bench_dims = {{LAYERNORM_BACKWARD_MEAN, {BENCH_ROWS}},
                   {LAYERNORM_BACKWARD_RSTD, {BENCH_ROWS}}},
    .inputs = inputs_layernorm_backward,
    .ref = ref_layernorm_backward,
    .has_many_variants = true,
    .shared_by = backward_shared_by,
};

const struct op_test test_rmsnorm_forward = {
    .shape = make_norm_forward,
    .bench = bench_plain,
    .inputs = inputs_layernorm_forward,
    .ref = ref_layernorm_forward,
    .shared_by = forward_shared_by,
};

const struct op_test test_rmsnorm_backward = {
    .shape = make_rmsnorm_backward,
    .bench = bench_plain,
    .bench_dims = {{RMSNORM_BACKWARD_RSTD, {BENCH_ROWS}}},
    .inputs = inputs_layernorm_backward,
    .ref = ref_layernorm_backward,
    .has_many_variants = true,
    .shared_by = backward_shared_by,
};
