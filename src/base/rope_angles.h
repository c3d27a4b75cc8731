/* The angles of rotary position embeddings.  Source: Su et al. 2021; transformers
 * modeling_rope_utils.py. */
#ifndef GPT_TRAIN_BASE_ROPE_ANGLES_H
#define GPT_TRAIN_BASE_ROPE_ANGLES_H

#include "base/status.h"

enum rope_scaling { ROPE_SCALING_NONE, ROPE_SCALING_LINEAR, ROPE_SCALING_LLAMA3 };

struct rope_config {
    double theta; /* base of the frequencies; 0 without rotary embeddings */
    enum rope_scaling scaling;
    double factor;                            /* of LINEAR and LLAMA3 */
    double low_freq_factor, high_freq_factor; /* of LLAMA3 */
    int32_t original_context;                 /* of LLAMA3: tokens */
};

#define ROPE_SCALING_TEXT_MAX 96
/* Sets the scaling from "", "linear:4" or "llama3:32,1,4,8192": factor, low_freq_factor,
 * high_freq_factor, context. Returns false if the text has another form or impossible numbers. */
bool rope_scaling_read(const char *text, struct rope_config *out);
/* Writes the scaling as rope_scaling_read() reads it.  Returns `text`. */
char *rope_scaling_text(char text[static ROPE_SCALING_TEXT_MAX], const struct rope_config *rope);

/* Returns the angle in radians by which pair i of a head of D numbers turns from one position to
 * the next, i < D / 2. LINEAR divides it by the factor; LLAMA3 divides only slow ones, whose wave
 * is longer than the original context over low_freq_factor, and blends up to high_freq_factor. */
double rope_frequency(const struct rope_config *rope, int32_t head_dim, int32_t i);

#endif
