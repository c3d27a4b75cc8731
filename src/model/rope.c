/* The angles of rotary position embeddings, in double precision: kernels get their sines and cosines from a table, so
 * that every backend turns by the same angles.
 */
#include "model/rope.h"

#include <math.h>

#define TWO_PI 6.283185307179586

static double llama3(const struct rope_config *rope, double frequency)
{
    const double waves = rope->original_context * frequency / TWO_PI; /* in the original context */
    if (waves > rope->high_freq_factor)
        return frequency;
    if (waves < rope->low_freq_factor)
        return frequency / rope->factor;
    const double share = (waves - rope->low_freq_factor) / (rope->high_freq_factor - rope->low_freq_factor);
    return (1.0 - share) * frequency / rope->factor + share * frequency;
}

double rope_frequency(const struct rope_config *rope, int32_t head_dim, int32_t i)
{
    const double frequency = pow(rope->theta, -2.0 * i / head_dim);
    if (rope->scaling == ROPE_SCALING_NONE)
        return frequency;
    return rope->scaling == ROPE_SCALING_LINEAR ? frequency / rope->factor : llama3(rope, frequency);
}
