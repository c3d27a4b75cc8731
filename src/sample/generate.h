/* Samples text from a model with a key-value cache.  Source: nanoGPT sample.py and model.py
 * GPT.generate. */
#ifndef GPT_TRAIN_SAMPLE_GENERATE_H
#define GPT_TRAIN_SAMPLE_GENERATE_H

#include "base/hostmem.h"
#include "session/session.h"

struct generate_options {
    uint64_t seed;
    double temperature;  /* 0 = always the likeliest token */
    int64_t top_k;       /* 0 = all */
    double top_p;        /* 0 or 1 = all */
    double min_p;        /* 0 = all */
    double repetition;   /* penalty; 0 or 1 = none */
    bool must_be_finite; /* logits that are not finite are an error; else a token is drawn all the
                            same */
};

struct generator;

/* Creates a generator for up to `tokens_max` tokens per sequence, prompt included.  It generates as
 * many sequences at once as the model's generate_batch says.  Errors: GT_NO_FIT where the system
 * has no memory for so many; GT_NO_MEMORY. */
enum gt_status generator_create(struct hostmem *mem, struct session *session,
                                const struct generate_options *options, int64_t tokens_max,
                                struct generator **out);

/* Starts sequence number `sequence`, which selects the random stream, and the ones after it in the
 * batch, all with the same prompt of count >= 1 tokens. */
void generator_begin(struct generator *generator, int64_t sequence, const int32_t *prompt,
                     int64_t count);
/* Appends the same tokens to each sequence. */
void generator_extend(struct generator *generator, const int32_t *tokens, int64_t count);
/* Writes the next token of each sequence to out[batch].  The model sees at most the last block_size
 * tokens of a sequence, as in nanoGPT.  The penalty divides positive logits of tokens that it has,
 * and multiplies the others (Keskar et al. 2019, arXiv:1909.05858).  Errors: GT_DIVERGED, those of
 * the device. */
enum gt_status generator_next(struct generator *generator, int32_t *out);

/* Returns the tokens of sequence `index` of the batch so far, prompt included.  The generator owns
 * them. */
const int32_t *generator_sequence(const struct generator *generator, int64_t index);

/* Draws an index from logits[count].  Divides by the temperature; keeps the top_k largest (and ties
 * at the edge, as in nanoGPT); of these keeps the fewest largest whose probabilities reach top_p
 * (and ties; Holtzman et al. 2020, arXiv:1904.09751), if they have at least min_p times the largest
 * probability; then applies softmax and inverts the cumulative distribution at `uniform` in [0, 1).
 * `scratch` holds count floats. */
int32_t generate_draw(const struct generate_options *how, const float *logits, int64_t count,
                      double uniform, float *scratch);

#endif
