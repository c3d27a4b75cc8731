/* The angles of rotary position embeddings, in double precision: kernels get their sines and
 * cosines from a table, so that every backend turns by the same angles.
 */
#include "base/rope_angles.h"

#include <math.h>

#define TWO_PI 6.283185307179586

static double llama3(const struct rope_config *rope, double frequency)
{
    const double waves = rope->original_context * frequency / TWO_PI; /* in the original context */
    if (waves > rope->high_freq_factor)
        return frequency;
    if (waves < rope->low_freq_factor)
        return frequency / rope->factor;
    const double share =
        (waves - rope->low_freq_factor) / (rope->high_freq_factor - rope->low_freq_factor);
    return (1.0 - share) * frequency / rope->factor + share * frequency;
}

double rope_frequency(const struct rope_config *rope, int32_t head_dim, int32_t i)
{
    const double frequency = pow(rope->theta, -2.0 * i / head_dim);
    if (rope->scaling == ROPE_SCALING_NONE)
        return frequency;
    return rope->scaling == ROPE_SCALING_LINEAR ? frequency / rope->factor
                                                : llama3(rope, frequency);
}

bool rope_scaling_read(const char *text, struct rope_config *out)
{
    int end = 0;
    const double most = 1e9;
    out->scaling = ROPE_SCALING_NONE;
    if (text[0] == '\0')
        return true;
    if (sscanf(text, "linear:%lf%n", &out->factor, &end) == 1 && text[end] == '\0') {
        out->scaling = ROPE_SCALING_LINEAR;
        return out->factor >= 1.0 && out->factor <= most;
    }
    if (sscanf(text, "llama3:%lf,%lf,%lf,%" SCNd32 "%n", &out->factor, &out->low_freq_factor,
               &out->high_freq_factor, &out->original_context, &end) != 4 ||
        text[end] != '\0')
        return false;
    out->scaling = ROPE_SCALING_LLAMA3;
    return out->factor >= 1.0 && out->factor <= most && out->low_freq_factor > 0.0 &&
           out->high_freq_factor > out->low_freq_factor && out->high_freq_factor <= most &&
           out->original_context > 0;
}

char *rope_scaling_text(char text[static ROPE_SCALING_TEXT_MAX], const struct rope_config *rope)
{
    text[0] = '\0';
    if (rope->scaling == ROPE_SCALING_LINEAR)
        snprintf(text, ROPE_SCALING_TEXT_MAX, "linear:%.15g", rope->factor);
    if (rope->scaling == ROPE_SCALING_LLAMA3)
        snprintf(text, ROPE_SCALING_TEXT_MAX, "llama3:%.15g,%.15g,%.15g,%" PRId32, rope->factor,
                 rope->low_freq_factor, rope->high_freq_factor, rope->original_context);
    return text;
}
