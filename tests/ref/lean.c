/* The exact ops: adamw_lean and gradient_round, element by element from the text of op.h.
 *
 * One version serves as oracle, control and mutants, because what is defined to the bit leaves nothing for a second one to
 * say; tests/unit/check_lean_vectors.c holds known answers that another program computed.  Compiled without contraction.
 * Values are doubles that hold fp32 numbers, bf16 numbers and codes exactly.
 */
#include "tests/ref/lean.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static float float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* The 16 bits of element i of a stream; half of the range where the defect is to round to nearest. */
static uint32_t random_of(const struct op_call *call, const double *scalars, int64_t i, uint32_t stream,
                          enum naive_defect defect)
{
    uint64_t seed = (uint64_t)scalars[SCALAR_SEED_HI] << 32 | (uint64_t)scalars[SCALAR_SEED_LO];
    uint64_t index = (uint64_t)i + (defect == DEFECT_SHIFTED ? 0u : (uint64_t)call->attrs.index_base);
    uint32_t step = defect == DEFECT_FORGET_STEP ? 0u : (uint32_t)scalars[SCALAR_STEP];
    if (defect == DEFECT_NEAREST)
        return 0x8000u;
    if (defect == DEFECT_WRONG_STREAM)
        stream ^= 1u;
    struct philox_block counter = {{(uint32_t)(index >> 3), (uint32_t)(index >> 35), step, stream}};
    struct philox_block block = philox4x32_10(philox_key_make(seed, RNG_STATES), counter);
    uint32_t word = block.word[(index & 7u) >> 1];
    return (index & 1u) != 0 ? word >> 16 : word & 0xffffu;
}

static float rounded_bf16(float x, uint32_t random)
{
    uint32_t bits = bits_of(x);
    if (isnan(x))
        return float_of((bits | 0x400000u) & 0xffff0000u);
    return isinf(x) ? x : float_of((bits + random) & 0xffff0000u);
}

float lean_rounded_bf16(const struct op_call *call, const double *scalars, int64_t i, uint32_t stream, float x,
                        enum naive_defect defect)
{
    return rounded_bf16(x, random_of(call, scalars, i, stream, defect));
}

static int exponent_of(float largest, uint32_t add, enum naive_defect defect)
{
    int e = (int)((bits_of(largest) + add) >> 23) - 127;
    if (defect == DEFECT_EXPONENT)
        e++;
    return e < STATE_EXPONENT_MIN ? STATE_EXPONENT_MIN : e > STATE_EXPONENT_MAX ? STATE_EXPONENT_MAX : e;
}

/* x >= 0 as a code of k fraction bits, before it is capped. */
static uint32_t encoded(float x, int k, uint32_t random)
{
    if (x < 0x1p-14f)
        return ((uint32_t)ldexpf(x, 30 + k) + random) >> 16;
    return ((bits_of(x) + (random << (7 - k))) >> (23 - k)) - (112u << k);
}

static float decoded(uint32_t code, int k)
{
    if (code < 1u << k)
        return ldexpf((float)code, -(14 + k));
    return float_of((code + (112u << k)) << (23 - k));
}

struct lean {
    const struct op_call *call;
    double *const *value;
    enum naive_defect defect;
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
    bool corrects = lean->defect != DEFECT_FORGET_CORRECTION;
    float m_hat = corrects ? m / lean->correction1 : m, v_hat = corrects ? v / lean->correction2 : v;
    float below = lean->defect == DEFECT_EPSILON ? sqrtf(v_hat + a->epsilon) : sqrtf(v_hat) + a->epsilon;
    float decay = a->weight_decay * p;
    if (lean->defect == DEFECT_CONTRACTED)
        return fmaf(-rate, fmaf(a->weight_decay, p, m_hat / below), p);
    return p - rate * (m_hat / below + decay);
}

/* Elements first .. end - 1, which share exponents; m and v are scratch for them. */
static void lean_store(const struct lean *lean, int64_t first, int64_t end, const float *m, const float *v)
{
    const double *scalars = lean->value[ADAMW_LEAN_SCALARS];
    double *to_m = lean->value[ADAMW_LEAN_M] + first, *to_v = lean->value[ADAMW_LEAN_V] + first;
    enum dtype dtype = lean->call->operand[ADAMW_LEAN_M].dtype;
    float largest_m = 0.0f, largest_s = 0.0f;
    for (int64_t i = 0; i < end - first; i++) {
        largest_m = fmaxf(largest_m, fabsf(m[i]));
        largest_s = fmaxf(largest_s, sqrtf(v[i]));
    }
    int e_m = exponent_of(largest_m, STATE_M_ADD, lean->defect),
        e_s = exponent_of(largest_s, STATE_V_ADD, lean->defect);
    for (int64_t i = 0; i < end - first; i++) {
        uint32_t random_m = random_of(lean->call, scalars, first + i, ROUNDING_M, lean->defect);
        uint32_t random_v = random_of(lean->call, scalars, first + i, ROUNDING_V, lean->defect);
        if (dtype == DTYPE_F32) {
            to_m[i] = (double)m[i];
            to_v[i] = (double)v[i];
        } else if (dtype == DTYPE_BF16) {
            to_m[i] = (double)rounded_bf16(m[i], random_m);
            to_v[i] = (double)rounded_bf16(v[i], random_v);
        } else {
            float s = sqrtf(v[i]);
            uint32_t code_m = encoded(ldexpf(fabsf(m[i]), -e_m), STATE_M_FRACTION, random_m);
            uint32_t code_v = encoded(ldexpf(s, -e_s), STATE_V_FRACTION, random_v);
            if (code_v == 0 && s > 0.0f && lean->defect != DEFECT_ZERO_CODE)
                code_v = 1;
            to_m[i] = fmin((double)code_m, STATE_M_CODE_MAX) + (signbit(m[i]) ? 128.0 : 0.0);
            to_v[i] = fmin((double)code_v, STATE_V_CODE_MAX);
        }
    }
    if (dtype != DTYPE_U8)
        return;
    lean->value[ADAMW_LEAN_SCALES][first / STATE_BLOCK] = (double)(uint8_t)(int8_t)e_m;
    lean->value[ADAMW_LEAN_SCALES][lean->call->operand[ADAMW_LEAN_SCALES].dims[1] + first / STATE_BLOCK] =
        (double)(uint8_t)(int8_t)e_s;
}

static void lean_block(const struct lean *lean, int64_t first, int64_t end)
{
    const struct op_attrs *a = &lean->call->attrs;
    const double *scalars = lean->value[ADAMW_LEAN_SCALARS];
    float clip = lean->defect == DEFECT_FORGET_SCALE ? 1.0f : (float)scalars[SCALAR_CLIP];
    float b1 = a->beta1, b2 = a->beta2, m[STATE_BLOCK], v[STATE_BLOCK];
    double *param = lean->value[ADAMW_LEAN_PARAM];
    for (int64_t i = first; i < end; i++) {
        float g = (float)lean->value[ADAMW_LEAN_GRAD][i] * clip, old_m = lean_m(lean, i), old_v = lean_v(lean, i);
        float new_m = b1 * old_m + (1.0f - b1) * g;
        if (lean->defect == DEFECT_CONTRACTED)
            new_m = fmaf(b1, old_m, (1.0f - b1) * g);
        float new_v = b2 * old_v + (1.0f - b2) * (g * g);
        float p = parameter_updated(lean, (float)param[i], new_m, new_v);
        param[i] = (double)rounded_bf16(p, random_of(lean->call, scalars, i, ROUNDING_PARAM, lean->defect));
        m[i - first] = new_m;
        v[i - first] = new_v;
    }
    int64_t whole = end - first == STATE_BLOCK && lean->defect == DEFECT_BLOCK_EDGE ? end - 1 : end;
    lean_store(lean, first, whole, m, v);
}

void naive_adamw_lean(const struct op_call *call, double *const value[OP_OPERANDS_MAX], enum naive_defect defect)
{
    const double *scalars = value[ADAMW_LEAN_SCALARS], *corrections = value[ADAMW_LEAN_CORRECTIONS];
    int64_t rows = call->operand[ADAMW_LEAN_CORRECTIONS].dims[0],
            count = operand_elements(&call->operand[ADAMW_LEAN_PARAM]);
    int64_t row = (int64_t)fmin(scalars[SCALAR_ADAM_STEP], (double)rows) - 1;
    if (scalars[SCALAR_FOUND_INF] != 0.0 && defect != DEFECT_FORGET_SKIP)
        return;
    struct lean lean = {call, value, defect, (float)corrections[2 * row], (float)corrections[2 * row + 1]};
    for (int64_t first = 0; first < count; first += STATE_BLOCK)
        lean_block(&lean, first, first + STATE_BLOCK < count ? first + STATE_BLOCK : count);
}

void naive_gradient_round(const struct op_call *call, double *const value[OP_OPERANDS_MAX], enum naive_defect defect)
{
    const double *scalars = value[GRADIENT_ROUND_SCALARS];
    bool adds = call->attrs.accumulate != 0 && defect != DEFECT_IGNORE_ACCUMULATE;
    uint32_t stream = ROUNDING_GRADIENT;
    if (defect != DEFECT_WRONG_SAMPLE)
        stream += 4u * (uint32_t)scalars[SCALAR_MICRO_STEP];
    for (int64_t i = 0; i < operand_elements(&call->operand[GRADIENT_ROUND_Y]); i++) {
        float x = (float)value[GRADIENT_ROUND_X][i];
        uint32_t random = random_of(call, scalars, i, stream, defect);
        if (defect == DEFECT_DOUBLE_ROUNDING)
            x = rounded_bf16(x, random);
        float sum = adds ? (float)value[GRADIENT_ROUND_Y][i] + x : x;
        value[GRADIENT_ROUND_Y][i] = (double)rounded_bf16(sum, random);
    }
}

void lean_unspecified(const struct op_call *call, const struct ref_tensors *t)
{
    for (int32_t slot = 0; slot < op_declaration(call->kind)->operands; slot++) {
        for (int64_t i = 0; t->value[slot] != NULL && i < operand_elements(&call->operand[slot]); i++)
            t->term[slot][i] = REF_UNSPECIFIED;
    }
}

void ref_adamw_lean(const struct op_call *call, const struct ref_tensors *t)
{
    naive_adamw_lean(call, t->value, DEFECT_NONE);
    lean_unspecified(call, t);
}

void ref_gradient_round(const struct op_call *call, const struct ref_tensors *t)
{
    naive_gradient_round(call, t->value, DEFECT_NONE);
    lean_unspecified(call, t);
}

/* ---- operands as bytes ---- */
static bool word_is_float(const struct op_call *call, int32_t slot, int64_t i)
{
    const struct operand *operand = &call->operand[slot];
    bool scalars =
        operand->dtype == DTYPE_I32 && strcmp(op_declaration(call->kind)->operand[slot].name, "scalars") == 0;
    return operand->dtype == DTYPE_F32 || (scalars && i <= SCALAR_LOSS_SUM);
}

static double element_read(const struct op_call *call, int32_t slot, int64_t i, const uint8_t *at)
{
    uint16_t half;
    uint32_t word;
    float x;
    if (call->operand[slot].dtype == DTYPE_U8)
        return (double)*at;
    if (dtype_size_bytes(call->operand[slot].dtype) == sizeof half) {
        memcpy(&half, at, sizeof half);
        bool wide = call->operand[slot].dtype == DTYPE_BF16;
        return wide ? (double)float_of((uint32_t)half << 16) : (double)f16_to_f32(half);
    }
    memcpy(&word, at, sizeof word);
    x = float_of(word);
    return word_is_float(call, slot, i) ? (double)x : (double)word;
}

static void element_write(const struct op_call *call, int32_t slot, double value, uint8_t *at)
{
    uint32_t bits = bits_of((float)value);
    uint16_t half = (uint16_t)(bits >> 16);
    if (call->operand[slot].dtype == DTYPE_F16)
        half = f16_from_f32((float)value);
    if (call->operand[slot].dtype == DTYPE_U8)
        *at = (uint8_t)value;
    else if (dtype_size_bytes(call->operand[slot].dtype) == sizeof half)
        memcpy(at, &half, sizeof half);
    else
        memcpy(at, &bits, sizeof bits);
}

void exact_by_elements(const struct op_call *call, uint8_t *memory)
{
    double *value[OP_OPERANDS_MAX] = {NULL};
    const struct op_declaration *declaration = op_declaration(call->kind);
    for (int32_t slot = 0; slot < declaration->operands; slot++) {
        const struct operand *operand = &call->operand[slot];
        size_t size = dtype_size_bytes(operand->dtype);
        if (!operand->present)
            continue;
        value[slot] = calloc((size_t)operand_elements(operand), sizeof(double));
        if (value[slot] == NULL)
            abort();
        for (int64_t i = 0; i < operand_elements(operand); i++)
            value[slot][i] = element_read(call, slot, i, memory + operand->at.offset_bytes + (size_t)i * size);
    }
    naive_run(call, value, DEFECT_NONE);
    for (int32_t slot = 0; slot < declaration->operands; slot++) {
        const struct operand *operand = &call->operand[slot];
        size_t size = dtype_size_bytes(operand->dtype);
        bool output = operand->present && op_direction(call->kind, &call->attrs, slot) != OPERAND_IN;
        for (int64_t i = 0; output && i < operand_elements(operand); i++)
            element_write(call, slot, value[slot][i], memory + operand->at.offset_bytes + (size_t)i * size);
        free(value[slot]);
    }
}
