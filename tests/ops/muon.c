/* The steps of Muon other than the matrix products.  The ops are exact. */
#include <math.h>

#include "tests/ops/op_test.h"

static void exact_muon_momentum(const struct op_call *call, double *const *value)
{
    const double *scalars = value[MUON_MOMENTUM_SCALARS];
    float clip = (float)scalars[SCALAR_CLIP];
    float mu = (float)scalars[SCALAR_MUON_MOMENTUM], rest = 1.0f - mu;
    bool skips = scalars[SCALAR_FOUND_INF] != 0.0;
    for (int64_t i = 0; i < op_elements(call, MUON_MOMENTUM_U); i++) {
        float g = (float)value[MUON_MOMENTUM_GRAD][i] * clip,
              old = (float)value[MUON_MOMENTUM_M][i];
        float m = mu * old + rest * g;
        float u = mu * m + rest * g;
        value[MUON_MOMENTUM_U][i] = skips ? 0.0 : (double)u;
        if (skips)
            continue;
        value[MUON_MOMENTUM_M][i] = (double)m;
        if (call->operand[MUON_MOMENTUM_M].dtype == DTYPE_BF16)
            value[MUON_MOMENTUM_M][i] =
                (double)exact_bf16(m, exact_random_of(call, scalars, i, ROUNDING_M));
    }
}

static void exact_muon_normalize(const struct op_call *call, double *const *value)
{
    float sum = (float)value[MUON_NORMALIZE_SUM][0];
    float below = sqrtf(sum) + MUON_NORM_EPSILON;
    for (int64_t i = 0; i < op_elements(call, MUON_NORMALIZE_Y); i++) {
        float x = (float)value[MUON_NORMALIZE_X][i];
        float y = x / below;
        value[MUON_NORMALIZE_Y][i] =
            (double)exact_rounded(call->operand[MUON_NORMALIZE_Y].dtype, y);
    }
}

static void exact_muon_step(const struct op_call *call, double *const *value)
{
    const double *scalars = value[MUON_STEP_SCALARS];
    const struct operand *param = &call->operand[MUON_STEP_PARAM];
    bool mastered = call->operand[MUON_STEP_MASTER].present;
    double *weights = value[mastered ? MUON_STEP_MASTER : MUON_STEP_PARAM];
    float rate = (float)scalars[SCALAR_LEARNING_RATE], scale = call->attrs.value,
          decay = call->attrs.weight_decay;
    rate = rate * call->attrs.alpha;
    if (scalars[SCALAR_FOUND_INF] != 0.0)
        return;
    for (int64_t i = 0; i < operand_elements(param); i++) {
        float p = (float)weights[i], o = (float)value[MUON_STEP_O][i];
        float next = p - rate * (scale * o + decay * p);
        if (mastered)
            value[MUON_STEP_MASTER][i] = (double)next;
        if (mastered || param->dtype != DTYPE_BF16)
            value[MUON_STEP_PARAM][i] = (double)exact_rounded(param->dtype, next);
        else
            value[MUON_STEP_PARAM][i] =
                (double)exact_bf16(next, exact_random_of(call, scalars, i, ROUNDING_PARAM));
    }
}

static void make_muon_momentum(struct maker *maker)
{
    int64_t count = case_lean_elements(maker);
    case_tensor(maker, MUON_MOMENTUM_GRAD, maker->index % 2 != 0 ? DTYPE_F32 : DTYPE_BF16, count,
                0);
    case_tensor(maker, MUON_MOMENTUM_M, maker->index % 3 != 0 ? DTYPE_BF16 : DTYPE_F32, count, 0);
    case_scalars(maker, MUON_MOMENTUM_SCALARS);
}

static void make_muon_normalize(struct maker *maker)
{
    int64_t rows = case_size(maker, 129), columns = case_any_size(maker, 129);
    case_tensor(maker, MUON_NORMALIZE_X, DTYPE_F32, rows, columns);
    case_tensor(maker, MUON_NORMALIZE_SUM, DTYPE_F32, 1, 0);
    case_tensor(maker, MUON_NORMALIZE_Y, maker->dtype, rows, columns);
}

/* One case of three each: a 16-bit param with its master, fp32 alone, bf16 alone. */
static void make_muon_step(struct maker *maker)
{
    int64_t count = case_lean_elements(maker);
    bool master = maker->index % 3 == 0;
    case_attrs(maker)->alpha = 33.3f;
    case_attrs(maker)->value = maker->index % 2 != 0 ? 1.0f : 1.7320508f;
    case_attrs(maker)->weight_decay = maker->index % 5 == 0 ? 0.0f : 0.1f;
    case_tensor(maker, MUON_STEP_O, maker->dtype, count, 0);
    case_tensor(maker, MUON_STEP_PARAM,
                master                  ? maker->dtype
                : maker->index % 3 == 1 ? DTYPE_F32
                                        : DTYPE_BF16,
                count, 0);
    if (master)
        case_tensor(maker, MUON_STEP_MASTER, DTYPE_F32, count, 0);
    case_scalars(maker, MUON_STEP_SCALARS);
}

/* Of momentum and step, whose scalars are in the same slot. */
static void inputs_muon_skip(const struct check_case *check, double *const *value,
                             struct random *random)
{
    (void)random;
    value[MUON_MOMENTUM_SCALARS][SCALAR_FOUND_INF] = check->inputs == INPUTS_SPECIAL ? 1.0 : 0.0;
}

static void inputs_muon_normalize(const struct check_case *check, double *const *value,
                                  struct random *random)
{
    value[MUON_NORMALIZE_SUM][0] =
        check->inputs == INPUTS_SMALL ? 1e-16 : 4.0 + random_normal(random);
}

const struct op_test test_muon_momentum = {
    .shape = make_muon_momentum,
    .bench = bench_wide,
    .inputs = inputs_muon_skip,
    .exact = exact_muon_momentum,
    .has_many_variants = true,
    .dtypes = 1u << DTYPE_BF16,
};

const struct op_test test_muon_normalize = {
    .shape = make_muon_normalize,
    .bench = bench_wide,
    .bench_dims = {{MUON_NORMALIZE_SUM, {1}}},
    .inputs = inputs_muon_normalize,
    .exact = exact_muon_normalize,
};

const struct op_test test_muon_step = {
    .shape = make_muon_step,
    .bench = bench_wide,
    .inputs = inputs_muon_skip,
    .exact = exact_muon_step,
};
