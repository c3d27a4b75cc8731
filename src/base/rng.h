/* Counter-based random numbers: Philox4x32-10 (Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2,
 * 3", SC 2011).
 *
 * The program has no generator state.  A draw is a pure function of a key and a counter: the key is (seed, purpose),
 * the counter selects the draw.  The numbers are therefore the same for any micro-batch, thread count, rank or backend,
 * and a resumed run needs only the seed and the step.
 */
#ifndef GPT_TRAIN_BASE_RNG_H
#define GPT_TRAIN_BASE_RNG_H

#include <stdint.h>

/* The purpose of a number: the second half of the key, so that no two uses share a stream.  The values are part of the
 * checkpoint format: never renumber. */
enum rng_purpose {
    RNG_INIT = 1,     /* initial weights: counter (element/4 lo, hi, tensor, 0) */
    RNG_SAMPLE = 2,   /* the block that a sample of a step reads: counter (sample, 0, step lo, step hi) */
    RNG_EPOCH = 3,    /* the keyed permutation of sampler=epoch: counter (round, value, epoch lo, epoch hi) */
    RNG_EVAL = 4,     /* evaluation batches: counter (sample, split, evaluation, 0) */
    RNG_DROPOUT = 5,  /* masks: counter (element/8, site, sample, step); see ops/op.h */
    RNG_GENERATE = 6, /* text generation: counter (token, sequence, 0, 0) */
    RNG_STATES = 7,   /* stochastic rounding of parameters and optimizer states */
};

struct philox_key {
    uint32_t word[2];
};
struct philox_block {
    uint32_t word[4];
};

/* The key for (seed, purpose).  Distinct pairs have distinct keys for seeds below 2^56. */
struct philox_key philox_key_make(uint64_t seed, enum rng_purpose purpose);

/* Writes the block of four 32-bit words of a counter.  Inlined: compilers turn a loop around it into vectors. */
static inline void philox_words(struct philox_key key, uint32_t x0, uint32_t x1, uint32_t x2, uint32_t x3,
                                uint32_t *word)
{
    const uint32_t key0 = key.word[0], key1 = key.word[1];
    for (uint32_t round = 0; round < 10; round++) {
        const uint64_t even = (uint64_t)0xd2511f53u * x0;
        const uint64_t odd = (uint64_t)0xcd9e8d57u * x2;
        x0 = (uint32_t)(odd >> 32) ^ x1 ^ (key0 + round * 0x9e3779b9u);
        x2 = (uint32_t)(even >> 32) ^ x3 ^ (key1 + round * 0xbb67ae85u);
        x1 = (uint32_t)odd;
        x3 = (uint32_t)even;
    }
    word[0] = x0;
    word[1] = x1;
    word[2] = x2;
    word[3] = x3;
}

/* Returns that block.  Known answer: key 0, counter 0 gives 6627e8d5 e169c58d bc57ac4c 9b00dbd8. */
struct philox_block philox4x32_10(struct philox_key key, struct philox_block counter);

/* A double in [0, 1), from 53 of the 64 bits. */
double philox_uniform(uint32_t hi, uint32_t lo);
/* An integer in [0, bound) from 64 random bits, by multiply-and-shift (bias below 2^-32 for bound < 2^32). */
uint64_t philox_below(uint32_t hi, uint32_t lo, uint64_t bound);
/* Standard normal values (Box-Muller in double, rounded to float; magnitude below 6.67).  Each block gives four; the
 * counter's first two words are incremented as one 64-bit number from block to block.  The result is bit-identical on
 * every machine. */
void philox_normals(struct philox_key key, struct philox_block counter, int64_t count, float *out);

#endif
