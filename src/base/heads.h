/* Which widths and numbers of heads go together, and what they cost: for the line that refuses a pair that does not. */
#ifndef GPT_TRAIN_BASE_HEADS_H
#define GPT_TRAIN_BASE_HEADS_H

#include <stdbool.h>
#include <stdint.h>

#define HEADS_TEXT_MAX 320

struct heads_shape {
    int64_t n_layer, n_head, n_embd, vocab_size; /* all >= 1 */
    bool bias;
};

/* Parameters of a GPT-2 of that shape without the position table, as nanoGPT prints them. */
double heads_parameter_count(const struct heads_shape *shape);

/* For a pair that does not divide: the multiples of n_head next to n_embd, and the divisors of n_embd next to n_head, with
 * parameters and the bytes of weights, gradients and both moments in fp32 (16 B each).  Returns `text`. */
char *heads_nearest_text(char text[static HEADS_TEXT_MAX], const struct heads_shape *shape);

#endif
