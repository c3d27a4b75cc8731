/* AdamW on fp32 weights, or with an fp32 master. */
#include <math.h>

#include "tests/ops/op_test.h"

static void adamw_element(const struct op_call *call, const struct ref_tensors *t,
                          const double *correction, int64_t i)
{
    const double *scalars = t->value[ADAMW_SCALARS];
    double b1 = (double)call->attrs.beta1, b2 = (double)call->attrs.beta2;
    double rate = scalars[SCALAR_LEARNING_RATE] * (double)call->attrs.alpha;
    const int32_t weight = call->operand[ADAMW_MASTER].present ? ADAMW_MASTER : ADAMW_PARAM;
    double g = t->value[ADAMW_GRAD][i] * scalars[SCALAR_CLIP], p = t->value[weight][i];
    double m_old = t->value[ADAMW_M][i], v_old = t->value[ADAMW_V][i];
    double m = b1 * m_old + (1.0 - b1) * g, v = b2 * v_old + (1.0 - b2) * g * g;
    double denominator = sqrt(v / correction[1]) + (double)call->attrs.epsilon;
    double move = m / correction[0] / denominator, decay = (double)call->attrs.weight_decay * p;
    double m_term = sqrt(3.0) * (fabs(b1 * m_old) + fabs((1.0 - b1) * g));
    double root_share = (denominator - (double)call->attrs.epsilon) / denominator;
    t->value[ADAMW_M][i] = m;
    t->value[ADAMW_V][i] = v;
    t->value[weight][i] = p - rate * (move + decay);
    t->term[ADAMW_M][i] = m_term;
    t->term[ADAMW_V][i] = sqrt(4.0) * v;
    t->term[weight][i] =
        fabs(p) + rate * (3.0 * fabs(decay) + m_term / correction[0] / denominator +
                          fabs(move) * (0.5 * sqrt(4.0) * root_share + 5.0));
    t->value[ADAMW_PARAM][i] = t->value[weight][i];
    t->term[ADAMW_PARAM][i] = t->term[weight][i];
}

static void ref_adamw(const struct op_call *call, const struct ref_tensors *t)
{
    const double *scalars = t->value[ADAMW_SCALARS];
    int64_t rows = call->operand[ADAMW_CORRECTIONS].dims[0],
            step = (int64_t)scalars[SCALAR_ADAM_STEP];
    const double *correction = t->value[ADAMW_CORRECTIONS] + 2 * ((step < rows ? step : rows) - 1);
    for (int64_t i = 0; i < op_elements(call, ADAMW_PARAM); i++) {
        if (scalars[SCALAR_FOUND_INF] == 0.0) {
            adamw_element(call, t, correction, i);
            continue;
        }
        t->term[ADAMW_PARAM][i] = t->term[ADAMW_M][i] = t->term[ADAMW_V][i] = REF_EXACT;
        if (call->operand[ADAMW_MASTER].present)
            t->term[ADAMW_MASTER][i] = REF_EXACT;
    }
}

static void make_adamw(struct maker *maker)
{
    int64_t rows = case_size(maker, 129),
            columns = maker->index % 4 == 0 ? 0 : case_any_size(maker, 129);
    case_attrs(maker)->beta1 = 0.9f;
    case_attrs(maker)->beta2 = maker->index % 2 != 0 ? 0.95f : 0.999f;
    case_attrs(maker)->epsilon = maker->index % 3 == 0 ? 1e-3f : 1e-8f;
    case_attrs(maker)->weight_decay = maker->index % 5 == 0 ? 0.0f : 0.1f;
    case_attrs(maker)->alpha = maker->index % 7 < 4 ? 1.0f : 3.3f;
    /* Two cases of three have a param with an fp32 master, the third a param alone; moments are
     * fp32 or 16-bit. */
    bool master = maker->index % 3 != 0;
    enum dtype moments = maker->index % 8 < 5    ? DTYPE_F32
                         : maker->index % 8 == 5 ? maker->dtype
                                                 : DTYPE_BF16;
    case_tensor(maker, ADAMW_GRAD, maker->index % 4 < 2 ? DTYPE_F32 : maker->dtype, rows, columns);
    case_tensor(maker, ADAMW_PARAM, master || maker->index % 6 == 0 ? maker->dtype : DTYPE_F32,
                rows, columns);
    if (master)
        case_tensor(maker, ADAMW_MASTER, DTYPE_F32, rows, columns);
    case_tensor(maker, ADAMW_M, moments, rows, columns);
    case_tensor(maker, ADAMW_V, moments, rows, columns);
    case_scalars(maker, ADAMW_SCALARS);
    case_tensor(maker, ADAMW_CORRECTIONS, DTYPE_F32, 1 + random_below(&maker->random, 40), 2);
}

static void inputs_adamw(const struct check_case *check, double *const *value,
                         struct random *random)
{
    int64_t rows = case_operand(check, ADAMW_CORRECTIONS)->dims[0],
            count = operand_elements(case_operand(check, ADAMW_PARAM));
    double small = check->inputs == INPUTS_SMALL ? 1e-5 : 0.1;
    for (int64_t i = 0; i < count; i++) {
        value[ADAMW_GRAD][i] *= small;
        value[ADAMW_M][i] *= small;
        value[ADAMW_V][i] *= value[ADAMW_V][i] * small * small;
    }
    for (int64_t k = 0; k < rows; k++) {
        value[ADAMW_CORRECTIONS][2 * k] =
            1.0 - pow((double)check->call.attrs.beta1, (double)(k + 1));
        value[ADAMW_CORRECTIONS][2 * k + 1] =
            1.0 - pow((double)check->call.attrs.beta2, (double)(k + 1));
    }
    inputs_huge(check, ADAMW_PARAM, value, 2.0 * HUGE_SCALE);
    inputs_huge(check, ADAMW_GRAD, value, HUGE_SCALE * HUGE_SCALE);
    inputs_huge(check, ADAMW_M, value, HUGE_SCALE * HUGE_SCALE);
    inputs_huge(check, ADAMW_MASTER, value, 2.0 * HUGE_SCALE);
    for (int64_t i = 0; i < count && value[ADAMW_MASTER] != NULL;
         i++) /* the result of the previous update */
        value[ADAMW_PARAM][i] = image_rounded(DTYPE_F32, value[ADAMW_MASTER][i]);
    value[ADAMW_SCALARS][SCALAR_ADAM_STEP] = (double)(1 + random_below(random, rows + 3));
    value[ADAMW_SCALARS][SCALAR_FOUND_INF] = check->inputs == INPUTS_SPECIAL ? 1.0 : 0.0;
}

/* Checks that param is the stored master, rounded: rounding the same weight twice may not give
 * another value. */
static bool judge_adamw(const struct check_case *check, const uint8_t *after, struct verdict *out)
{
    const struct operand *param = &check->call.operand[ADAMW_PARAM];
    for (int64_t i = 0; check->call.operand[ADAMW_MASTER].present && i < operand_elements(param);
         i++) {
        double rounded = image_rounded(param->dtype, image_decode(check, ADAMW_MASTER, i, after));
        double found = image_decode(check, ADAMW_PARAM, i, after);
        if (found != rounded && !(isnan(found) && isnan(rounded)))
            return judge_fail(check, ADAMW_PARAM, i, "must be the master, rounded", found, rounded,
                              out);
    }
    return true;
}

const struct op_test test_adamw = {
    .shape = make_adamw,
    .bench = bench_wide,
    .bench_dims = {{ADAMW_CORRECTIONS, {1, 2}}},
    .inputs = inputs_adamw,
    .ref = ref_adamw,
    .has_many_variants = true,
    .judge = judge_adamw,
};
