/* Suggests valid pairs of n_embd and n_head, with their cost, for the error line that rejects an
 * invalid pair. */
#ifndef GPT_TRAIN_BASE_HEADS_H
#define GPT_TRAIN_BASE_HEADS_H

#include "base/status.h"

#define HEADS_TEXT_MAX 320

struct heads_shape {
    int64_t n_layer, n_head, n_embd, vocab_size; /* all >= 1 */
    bool bias;
};

/* For an n_embd that n_head does not divide: writes the multiples of n_head nearest to n_embd and
 * the divisors of n_embd nearest to n_head.  Each width comes with its parameters and the bytes of
 * weights, gradients and both moments in fp32 (16 B per parameter).  Returns `text`. */
char *heads_nearest_text(char text[static HEADS_TEXT_MAX], const struct heads_shape *shape);

#endif
