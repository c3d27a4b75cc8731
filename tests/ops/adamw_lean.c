/* AdamW without a master.  The op is exact: it is defined to the bit, so that there is no oracle.
 */
#include <math.h>

#include "tests/ops/op_test.h"

static int exponent_of(float largest, uint32_t add)
{
    int e = (int)((exact_bits_of(largest) + add) >> 23) - 127;
    return e < STATE_EXPONENT_MIN   ? STATE_EXPONENT_MIN
           : e > STATE_EXPONENT_MAX ? STATE_EXPONENT_MAX
                                    : e;
}

/* Encodes x >= 0 with k fraction bits, before the code is capped. */
static uint32_t encoded(float x, int k, uint32_t random)
{
    if (x < 0x1p-14f)
        return ((uint32_t)ldexpf(x, 30 + k) + random) >> 16;
    return ((exact_bits_of(x) + (random << (7 - k))) >> (23 - k)) - (112u << k);
}

static float decoded(uint32_t code, int k)
{
    if (code < 1u << k)
        return ldexpf((float)code, -(14 + k));
    return exact_float_of((code + (112u << k)) << (23 - k));
}

struct lean {
    const struct op_call *call;
    double *const *value;
    float correction1, correction2;
};

static float lean_m(const struct lean *lean, int64_t i)
{
    double stored = lean->value[ADAMW_LEAN_M][i];
    if (lean->call->operand[ADAMW_LEAN_M].dtype != DTYPE_U8)
        return (float)stored;
    uint32_t code = (uint32_t)stored;
    int e = (int8_t)(uint8_t)lean->value[ADAMW_LEAN_SCALES][i / STATE_BLOCK];
    float m = ldexpf(decoded(code & 127u, STATE_M_FRACTION), e);
    return code > 127u ? -m : m;
}

static float lean_v(const struct lean *lean, int64_t i)
{
    double stored = lean->value[ADAMW_LEAN_V][i];
    if (lean->call->operand[ADAMW_LEAN_V].dtype != DTYPE_U8)
        return (float)stored;
    int64_t blocks = lean->call->operand[ADAMW_LEAN_SCALES].dims[1];
    int e = (int8_t)(uint8_t)lean->value[ADAMW_LEAN_SCALES][blocks + i / STATE_BLOCK];
    float s = ldexpf(decoded((uint32_t)stored, STATE_V_FRACTION), e);
    return s * s;
}

static float parameter_updated(const struct lean *lean, float p, float m, float v)
{
    const struct op_attrs *a = &lean->call->attrs;
    float rate = (float)lean->value[ADAMW_LEAN_SCALARS][SCALAR_LEARNING_RATE];
    rate *= a->alpha;
    float m_hat = m / lean->correction1, v_hat = v / lean->correction2;
    float below = sqrtf(v_hat) + a->epsilon;
    float decay = a->weight_decay * p;
    return p - rate * (m_hat / below + decay);
}

/* Stores elements first .. end - 1, which share exponents; m and v are their new moments. */
static void lean_store(const struct lean *lean, int64_t first, int64_t end, const float *m,
                       const float *v)
{
    const double *scalars = lean->value[ADAMW_LEAN_SCALARS];
    double *to_m = lean->value[ADAMW_LEAN_M] + first, *to_v = lean->value[ADAMW_LEAN_V] + first;
    enum dtype dtype = lean->call->operand[ADAMW_LEAN_M].dtype;
    float largest_m = 0.0f, largest_s = 0.0f;
    for (int64_t i = 0; i < end - first; i++) {
        largest_m = fmaxf(largest_m, fabsf(m[i]));
        largest_s = fmaxf(largest_s, sqrtf(v[i]));
    }
    int e_m = exponent_of(largest_m, STATE_M_ADD), e_s = exponent_of(largest_s, STATE_V_ADD);
    for (int64_t i = 0; i < end - first; i++) {
        uint32_t random_m = exact_random_of(lean->call, scalars, first + i, ROUNDING_M);
        uint32_t random_v = exact_random_of(lean->call, scalars, first + i, ROUNDING_V);
        if (dtype == DTYPE_F32) {
            to_m[i] = (double)m[i];
            to_v[i] = (double)v[i];
        } else if (dtype == DTYPE_BF16) {
            to_m[i] = (double)exact_bf16(m[i], random_m);
            to_v[i] = (double)exact_bf16(v[i], random_v);
        } else {
            float s = sqrtf(v[i]);
            uint32_t code_m = encoded(ldexpf(fabsf(m[i]), -e_m), STATE_M_FRACTION, random_m);
            uint32_t code_v = encoded(ldexpf(s, -e_s), STATE_V_FRACTION, random_v);
            if (code_v == 0 && s > 0.0f)
                code_v = 1;
            to_m[i] = fmin((double)code_m, STATE_M_CODE_MAX) + (signbit(m[i]) ? 128.0 : 0.0);
            to_v[i] = fmin((double)code_v, STATE_V_CODE_MAX);
        }
    }
    if (dtype != DTYPE_U8)
        return;
    lean->value[ADAMW_LEAN_SCALES][first / STATE_BLOCK] = (double)(uint8_t)(int8_t)e_m;
    lean->value[ADAMW_LEAN_SCALES][lean->call->operand[ADAMW_LEAN_SCALES].dims[1] +
                                   first / STATE_BLOCK] = (double)(uint8_t)(int8_t)e_s;
}

static void lean_block(const struct lean *lean, int64_t first, int64_t end)
{
    const struct op_attrs *a = &lean->call->attrs;
    const double *scalars = lean->value[ADAMW_LEAN_SCALARS];
    float clip = (float)scalars[SCALAR_CLIP];
    float b1 = a->beta1, b2 = a->beta2, m[STATE_BLOCK], v[STATE_BLOCK];
    double *param = lean->value[ADAMW_LEAN_PARAM];
    for (int64_t i = first; i < end; i++) {
        float g = (float)lean->value[ADAMW_LEAN_GRAD][i] * clip, old_m = lean_m(lean, i),
              old_v = lean_v(lean, i);
        float new_m = b1 * old_m + (1.0f - b1) * g;
        float new_v = b2 * old_v + (1.0f - b2) * (g * g);
        float p = parameter_updated(lean, (float)param[i], new_m, new_v);
        param[i] = (double)exact_bf16(p, exact_random_of(lean->call, scalars, i, ROUNDING_PARAM));
        m[i - first] = new_m;
        v[i - first] = new_v;
    }
    lean_store(lean, first, end, m, v);
}

static void exact_adamw_lean(const struct op_call *call, double *const *value)
{
    const double *scalars = value[ADAMW_LEAN_SCALARS], *corrections = value[ADAMW_LEAN_CORRECTIONS];
    int64_t rows = call->operand[ADAMW_LEAN_CORRECTIONS].dims[0],
            count = op_elements(call, ADAMW_LEAN_PARAM);
    int64_t row = (int64_t)fmin(scalars[SCALAR_ADAM_STEP], (double)rows) - 1;
    if (scalars[SCALAR_FOUND_INF] != 0.0)
        return;
    struct lean lean = {call, value, (float)corrections[2 * row], (float)corrections[2 * row + 1]};
    for (int64_t first = 0; first < count; first += STATE_BLOCK)
        lean_block(&lean, first, first + STATE_BLOCK < count ? first + STATE_BLOCK : count);
}

static void make_adamw_lean(struct maker *maker)
{
    static const enum dtype moments[] = {DTYPE_U8, DTYPE_BF16, DTYPE_U8, DTYPE_F32};
    int64_t count = case_lean_elements(maker);
    enum dtype moment = moments[maker->index / 3 % COUNT(moments)];
    case_attrs(maker)->beta1 = 0.9f;
    case_attrs(maker)->beta2 = maker->index % 2 != 0 ? 0.95f : 0.999f;
    case_attrs(maker)->epsilon = maker->index % 3 == 0 ? 1e-3f : 1e-8f;
    case_attrs(maker)->weight_decay = maker->index % 5 == 0 ? 0.0f : 0.1f;
    case_attrs(maker)->alpha = maker->index % 7 < 4 ? 1.0f : 3.3f;
    case_tensor(maker, ADAMW_LEAN_GRAD, maker->index / 12 % 2 != 0 ? DTYPE_F32 : DTYPE_BF16, count,
                0);
    case_tensor(maker, ADAMW_LEAN_PARAM, DTYPE_BF16, count, 0);
    case_tensor(maker, ADAMW_LEAN_M, moment, count, 0);
    case_tensor(maker, ADAMW_LEAN_V, moment, count, 0);
    if (moment == DTYPE_U8)
        case_tensor(maker, ADAMW_LEAN_SCALES, DTYPE_U8, 2, state_blocks(count));
    case_scalars(maker, ADAMW_LEAN_SCALARS);
    case_tensor(maker, ADAMW_LEAN_CORRECTIONS, DTYPE_F32, 1 + random_below(&maker->random, 40), 2);
}

/* The size of gradients varies between neighbours: some blocks span seven powers of ten, some are
 * all zero. */
static double lean_size(const struct check_case *check, int64_t i)
{
    if (check->inputs == INPUTS_SMALL && i / STATE_BLOCK % 2 == 0)
        return i / STATE_BLOCK % 4 == 0 ? 0.0 : 1e-30;
    return check->inputs == INPUTS_LARGE ? pow(10.0, (double)(-(i % 8))) : 0.1;
}

static void inputs_lean_codes(const struct check_case *check, double *const *value,
                              struct random *random)
{
    int64_t blocks = case_operand(check, ADAMW_LEAN_SCALES)->dims[1];
    for (int64_t i = 0; i < operand_elements(case_operand(check, ADAMW_LEAN_M)); i++) {
        bool zero = lean_size(check, i) == 0.0;
        value[ADAMW_LEAN_M][i] = zero ? 0.0 : (double)random_below(random, 256);
        value[ADAMW_LEAN_V][i] = zero ? 0.0 : (double)random_below(random, 256);
    }
    for (int64_t k = 0; k < 2 * blocks; k++) {
        int64_t e = check->inputs == INPUTS_HUGE ? random_below(random, 227) - 100
                                                 : random_below(random, 12) - 10;
        value[ADAMW_LEAN_SCALES][k] =
            (double)(uint8_t)(int8_t)(k >= blocks && e > 63 ? 63 : e); /* s is squared */
    }
}

static void inputs_adamw_lean(const struct check_case *check, double *const *value,
                              struct random *random)
{
    int64_t rows = case_operand(check, ADAMW_LEAN_CORRECTIONS)->dims[0];
    for (int64_t i = 0; i < operand_elements(case_operand(check, ADAMW_LEAN_PARAM)); i++) {
        double size = lean_size(check, i);
        value[ADAMW_LEAN_GRAD][i] *= size;
        value[ADAMW_LEAN_M][i] *= size;
        value[ADAMW_LEAN_V][i] *= value[ADAMW_LEAN_V][i] * size * size;
    }
    if (case_operand(check, ADAMW_LEAN_M)->dtype == DTYPE_U8)
        inputs_lean_codes(check, value, random);
    for (int64_t k = 0; k < rows; k++) {
        value[ADAMW_LEAN_CORRECTIONS][2 * k] =
            1.0 - pow((double)check->call.attrs.beta1, (double)(k + 1));
        value[ADAMW_LEAN_CORRECTIONS][2 * k + 1] =
            1.0 - pow((double)check->call.attrs.beta2, (double)(k + 1));
    }
    value[ADAMW_LEAN_SCALARS][SCALAR_ADAM_STEP] = (double)(1 + random_below(random, rows + 3));
    if (check->inputs != INPUTS_SPECIAL)
        return;
    value[ADAMW_LEAN_SCALARS][SCALAR_FOUND_INF] = 1.0;
    value[ADAMW_LEAN_GRAD]
         [random_below(random, operand_elements(case_operand(check, ADAMW_LEAN_GRAD)))] =
             (double)NAN;
}

const struct op_test test_adamw_lean = {
    .shape = make_adamw_lean,
    .bench = bench_wide,
    .bench_dims = {{ADAMW_LEAN_CORRECTIONS, {1, 2}},
                   {ADAMW_LEAN_SCALES, {2, BENCH_ROWS *BENCH_WIDE / STATE_BLOCK}}},
    .inputs = inputs_adamw_lean,
    .exact = exact_adamw_lean,
    .has_many_variants = true,
    .dtypes = 1u << DTYPE_BF16,
};
