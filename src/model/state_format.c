/* The table of state formats, and the 8-bit moments on the host.
 *
 * Byte counts are computed from the dtypes, so that the plan and the table cannot disagree.  The planner's order skips
 * `sr`: with 14 bytes per parameter it saves little if a master does not fit, and sr_bf16 has no measurable loss either
 * (doc/states.md).
 *
 * op.h defines the codes of moments.  They are rounded to nearest, because a conversion happens only once; in training,
 * the backends round stochastically at every step.
 */
#include "model/state_format.h"

#include <math.h>

#include "ops/op.h"

static const struct {
    const char *name;
    enum dtype gradient, moment, embedding_moment;
    enum state_format next;
} table[STATE_FORMATS] = {
    [STATE_MASTER] = {"master", DTYPE_F32, DTYPE_F32, DTYPE_F32, STATE_SR_BF16},
    [STATE_SR] = {"sr", DTYPE_F32, DTYPE_F32, DTYPE_F32, STATE_SR_BF16},
    [STATE_SR_BF16] = {"sr_bf16", DTYPE_BF16, DTYPE_BF16, DTYPE_BF16, STATE_SR_8BIT},
    [STATE_SR_8BIT] = {"sr_8bit", DTYPE_BF16, DTYPE_U8, DTYPE_BF16, STATE_SR_8BIT_FULL},
    [STATE_SR_8BIT_FULL] = {"sr_8bit_full", DTYPE_BF16, DTYPE_U8, DTYPE_U8, STATE_FORMATS},
};

const char *state_format_name(enum state_format format)
{
    assert(format >= 0 && format < STATE_FORMATS);
    return table[format].name;
}

bool state_format_from_name(const char *name, enum state_format *out)
{
    for (int format = 0; format < STATE_FORMATS; format++) {
        if (strcmp(table[format].name, name) == 0) {
            *out = (enum state_format)format;
            return true;
        }
    }
    return false;
}

bool state_format_is_lean(enum state_format format)
{
    return format != STATE_MASTER;
}

struct state_dtypes state_format_dtypes(enum state_format format, enum dtype dtype, bool embedding)
{
    assert(format >= 0 && format < STATE_FORMATS);
    if (dtype == DTYPE_F32 || format == STATE_MASTER)
        return (struct state_dtypes){.master = dtype != DTYPE_F32, .gradient = DTYPE_F32, .moment = DTYPE_F32};
    return (struct state_dtypes){.gradient = table[format].gradient,
                                 .moment = embedding ? table[format].embedding_moment : table[format].moment};
}

enum state_format state_format_next(enum state_format format)
{
    assert(format >= 0 && format < STATE_FORMATS);
    return table[format].next;
}

/* ---- 8-bit moments, one block at a time ---- */

#define HALF 0x8000u /* half of a code's last unit, in the 16 bits that rounding drops */

static uint32_t fraction_bits(enum state_moment moment)
{
    return moment == STATE_MOMENT_M ? STATE_M_FRACTION : STATE_V_FRACTION;
}

static uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static float magnitude_of(uint32_t code, uint32_t k)
{
    float x;
    uint32_t bits = (code + (112u << k)) << (23 - k);
    if (code < 1u << k)
        return ldexpf((float)code, -14 - (int)k);
    memcpy(&x, &bits, sizeof x);
    return x;
}

void state_codes_decode(enum state_moment moment, const uint8_t *codes, int8_t exponent, size_t count, float *out)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t code = moment == STATE_MOMENT_M ? codes[i] & STATE_M_CODE_MAX : codes[i];
        float x = ldexpf(magnitude_of(code, fraction_bits(moment)), exponent);
        if (moment == STATE_MOMENT_V)
            out[i] = x * x;
        else
            out[i] = codes[i] > STATE_M_CODE_MAX ? -x : x;
    }
}

static uint32_t code_of(float x, uint32_t k)
{
    if (x < 0x1p-14f)
        return ((uint32_t)ldexpf(x, 30 + (int)k) + HALF) >> 16;
    return ((bits_of(x) + (HALF << (7 - k))) >> (23 - k)) - (112u << k);
}

/* Returns the value to encode: |m|, or the root of v. */
static float coded_value(enum state_moment moment, float value)
{
    return moment == STATE_MOMENT_M ? fabsf(value) : sqrtf(value);
}

int8_t state_codes_encode(enum state_moment moment, const float *values, size_t count, uint8_t *codes)
{
    const uint32_t k = fraction_bits(moment), add = moment == STATE_MOMENT_M ? STATE_M_ADD : STATE_V_ADD;
    const uint32_t most = moment == STATE_MOMENT_M ? STATE_M_CODE_MAX : STATE_V_CODE_MAX;
    float largest = 0.0f;
    assert(count <= STATE_BLOCK);
    for (size_t i = 0; i < count; i++)
        largest = fmaxf(largest, coded_value(moment, values[i]));
    int exponent = (int)((bits_of(largest) + add) >> 23) - 127;
    exponent = exponent < STATE_EXPONENT_MIN ? STATE_EXPONENT_MIN : exponent;
    exponent = exponent > STATE_EXPONENT_MAX ? STATE_EXPONENT_MAX : exponent;
    for (size_t i = 0; i < count; i++) {
        float x = coded_value(moment, values[i]);
        uint32_t code = code_of(ldexpf(x, -exponent), k);
        code = code > most ? most : code;
        if (moment == STATE_MOMENT_V && code == 0 && x > 0.0f)
            code = 1;
        codes[i] = (uint8_t)(moment == STATE_MOMENT_M && signbit(values[i]) ? code | 128u : code);
    }
    return (int8_t)exponent;
}
