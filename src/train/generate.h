/* Sampling text from a model with a key-value cache.  Source: nanoGPT sample.py and model.py GPT.generate. */
#ifndef GPT_TRAIN_TRAIN_GENERATE_H
#define GPT_TRAIN_TRAIN_GENERATE_H

#include <stdint.h>

#include "base/hostmem.h"
#include "base/status.h"
#include "train/session.h"

struct generate_options {
    uint64_t seed;
    double temperature; /* > 0 */
    int64_t top_k;      /* 0 = all */
    double top_p;       /* 0 or 1 = all */
};

struct generator;

/* For up to `tokens_max` tokens per sequence, prompt included.  As many sequences are written at once as the model's
 * generate_batch says.  Errors: GT_NO_FIT where the system has no memory for so many; GT_NO_MEMORY. */
enum gt_status generator_create(struct hostmem *mem, struct session *session, const struct generate_options *options,
                                int64_t tokens_max, struct generator **out);
void generator_destroy(struct generator *generator);

/* Starts sequence number `sequence` (it selects the random stream), and those after it in the batch, with one prompt of
 * count >= 1 tokens. */
enum gt_status generator_begin(struct generator *generator, int64_t sequence, const int32_t *prompt, int64_t count);
/* out[batch] = the next token of each sequence.  Where the sequences have grown beyond block_size, only their last
 * block_size tokens are seen, as in nanoGPT.  Errors: those of the device. */
enum gt_status generator_next(struct generator *generator, int32_t *out);

/* The tokens of sequence `index` of the batch so far, prompt included; the generator's. */
const int32_t *generator_sequence(const struct generator *generator, int64_t index);

/* Draws an index from logits[count]: divided by temperature, all but the top_k largest left out (ties at the edge stay, as
 * in nanoGPT), then all but the fewest of the largest whose probabilities reach top_p (ties stay too; Holtzman et al.
 * 2020, arXiv:1904.09751), softmax, and the inverse of the cumulative distribution at `uniform` in [0, 1).  `scratch`
 * holds count floats. */
int32_t generate_draw(const struct generate_options *how, const float *logits, int64_t count, double uniform,
                      float *scratch);

#endif
