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
};

struct generator;

/* For up to `tokens_max` tokens per sequence, prompt included.  Errors: GT_NO_MEMORY. */
enum gt_status generator_create(struct hostmem *mem, struct session *session, const struct generate_options *options,
                                int64_t tokens_max, struct generator **out);
void generator_destroy(struct generator *generator);

/* Starts sequence number `sequence` (it selects the random stream) with a prompt of count >= 1 tokens. */
enum gt_status generator_begin(struct generator *generator, int64_t sequence, const int32_t *prompt, int64_t count);
/* Draws the next token.  Where the sequence has grown beyond block_size, only its last block_size tokens are seen, as
 * in nanoGPT.  Errors: those of the device. */
enum gt_status generator_next(struct generator *generator, int32_t *out);

/* Draws an index from logits[count]: divided by temperature, all but the top_k largest left out (ties at the edge stay,
 * as in nanoGPT), softmax, and the inverse of the cumulative distribution at `uniform` in [0, 1).  `scratch` holds
 * count floats. */
int32_t generate_draw(const float *logits, int64_t count, double temperature, int64_t top_k, double uniform,
                      float *scratch);

#endif
