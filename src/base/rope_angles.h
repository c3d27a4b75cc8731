/* The angles of rotary position embeddings.  Source: Su et al. 2021; transformers
 * modeling_rope_utils.py. */
#ifndef GPT_TRAIN_BASE_ROPE_ANGLES_H
#define GPT_TRAIN_BASE_ROPE_ANGLES_H

#include "base/status.h"

enum rope_scaling {
    ROPE_SCALING_NONE,
    ROPE_SCALING_LINEAR,
    ROPE_SCALING_LLAMA3,
    ROPE_SCALING_YARN,
    ROPE_SCALING_LONGROPE,
    ROPE_SCALING_DYNAMIC
};

#define ROPE_PAIRS_MAX 64 /* of LONGROPE */

struct rope_config {
    double theta; /* base of the frequencies; 0 without rotary embeddings */
    enum rope_scaling scaling;
    double factor;                            /* of all but LONGROPE */
    double low_freq_factor, high_freq_factor; /* of LLAMA3 */
    int32_t original_context;                 /* of all but LINEAR: tokens */
    double beta_fast, beta_slow;              /* of YARN: rotations in the original context */
    double attention_factor;                  /* of YARN and LONGROPE: of cosines and sines */
    bool whole_pairs;                         /* of YARN: beta_fast and beta_slow round to pairs */
    int32_t pairs;                            /* of LONGROPE: pairs that have factors */
    float divisors[2][ROPE_PAIRS_MAX];        /* of LONGROPE: in short and in long contexts */
};

#define ROPE_SCALING_TEXT_MAX 2400
/* The forms that a text may have, for messages. */
#define ROPE_SCALING_FORMS                                                                        \
    "linear:FACTOR, llama3:FACTOR,LOW,HIGH,CONTEXT, yarn:FACTOR,CONTEXT, dynamic:FACTOR,CONTEXT " \
    "or longrope:CONTEXT,ATTENTION,DIVISORS"
/* Sets the scaling from "", "linear:4", "llama3:32,1,4,8192" (factor, low_freq_factor,
 * high_freq_factor, context), "dynamic:4,2048" (factor, context), "yarn:4,32768" (factor, context;
 * then perhaps beta_fast, beta_slow, attention_factor, truncate) or
 * "longrope:4096,1.19,1,2,...,3,4" (context, attention_factor, the pairs' divisors in short
 * contexts, and in long ones).  Returns false if the text has another form or impossible numbers.
 */
bool rope_scaling_read(const char *text, struct rope_config *out);
/* Writes the scaling as rope_scaling_read() reads it.  Returns `text`. */
char *rope_scaling_text(char text[static ROPE_SCALING_TEXT_MAX], const struct rope_config *rope);
/* Returns YARN's attention_factor of a model whose file has none: 0.1 ln factor + 1. */
double rope_yarn_attention(double factor);

/* Returns the angle in radians by which pair i < size / 2 of `size` rotated numbers advances from
 * one position to the next, in contexts of up to `block` tokens.  LINEAR divides it by the factor;
 * LLAMA3 divides only slow ones, whose wave is longer than the original context over
 * low_freq_factor, and blends up to high_freq_factor; YARN blends between the pairs that rotate
 * beta_fast and beta_slow times in the original context; DYNAMIC raises theta, and LONGROPE has
 * other divisors, where `block` is longer than the original context. */
double rope_frequency(const struct rope_config *rope, int32_t size, int32_t block, int32_t i);
/* Returns the factor of cosines and sines, which is 1 except for YARN and LONGROPE. */
double rope_attention(const struct rope_config *rope);
/* Returns true if the angles depend on whether contexts are longer than the original one. */
bool rope_depends_on_block(const struct rope_config *rope);

#endif
