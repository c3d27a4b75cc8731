/* Encodes and decodes 8-bit moments, one block at a time.
 *
 * op.h defines the format.  Rounding is to nearest, because a conversion happens only once; in training, the backends
 * round stochastically at every step.
 */
#include "model/state_codes.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "ops/op.h"

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
