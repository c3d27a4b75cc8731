/* The table of state formats, and the 8-bit moments on the host.
 *
 * Byte counts are computed from the dtypes, so that the plan and the table cannot disagree.  The
 * planner's order skips `sr`: with 14 bytes per parameter it saves little if a master does not fit,
 * and sr_bf16 has no measurable loss either (doc/states.md).
 *
 * op.h defines the codes of moments.  They are rounded to nearest, because a conversion happens
 * only once; in training, the backends round stochastically at every step.
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
        return (struct state_dtypes){
            .master = dtype != DTYPE_F32, .gradient = DTYPE_F32, .moment = DTYPE_F32};
    return (struct state_dtypes){.gradient = table[format].gradient,
                                 .moment = embedding ? table[format].embedding_moment
                                                     : table[format].moment};
}

enum state_format state_format_next(enum state_format format)
{
    assert(format >= 0 && format < STATE_FORMATS);
    return table[format].next;
}

/* ---- 8-bit moments, one block at a time ---- */

#define HALF 0x8000u /* half of a code's last unit, in the 16 bits that rounding drops */

void state_codes_decode(enum state_moment moment, const uint8_t *codes, int8_t exponent,
                        size_t count, float *out)
{
    for (size_t i = 0; i < count; i++)
        out[i] = state_decode(moment == STATE_MOMENT_V, codes[i], state_scale(exponent));
}

int8_t state_codes_encode(enum state_moment moment, const float *values, size_t count,
                          uint8_t *codes)
{
    const bool is_v = moment == STATE_MOMENT_V;
    float largest = 0.0f;
    assert(count <= STATE_BLOCK);
    for (size_t i = 0; i < count; i++)
        largest = fmaxf(largest, state_magnitude(is_v, values[i]));
    const int32_t exponent = state_exponent(is_v, largest);
    for (size_t i = 0; i < count; i++)
        codes[i] = (uint8_t)state_encode(is_v, values[i], state_magnitude(is_v, values[i]),
                                         state_scale(-exponent), HALF);
    return (int8_t)exponent;
}
