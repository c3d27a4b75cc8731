/* Counter-based random numbers: Philox4x32-10 (Salmon, Moraes, Dror, Shaw, "Parallel random
 * numbers: as easy as 1, 2, 3", SC 2011).
 *
 * The program has no generator state.  A draw is a pure function of a key and a counter: the key is
 * (seed, purpose), the counter selects the draw.  The numbers are therefore the same for any
 * micro-batch, thread count, rank or backend, and a resumed run needs only the seed and the step.
 */
#ifndef GPT_TRAIN_BASE_RNG_H
#define GPT_TRAIN_BASE_RNG_H

#include "base/bits.h"

/* The key for (seed, purpose).  Distinct pairs have distinct keys for seeds below 2^56. */
struct philox_key philox_key_make(uint64_t seed, enum rng_purpose purpose);

/* Returns philox_words().  Known answer: key 0, counter 0 gives 6627e8d5 e169c58d bc57ac4c
 * 9b00dbd8. */
struct philox_block philox4x32_10(struct philox_key key, struct philox_block counter);

/* A double in [0, 1), from 53 of the 64 bits. */
double philox_uniform(uint32_t hi, uint32_t lo);
/* An integer in [0, bound) from 64 random bits, by multiply-and-shift (bias below 2^-32 for bound <
 * 2^32). */
uint64_t philox_below(uint32_t hi, uint32_t lo, uint64_t bound);
/* Standard normal values (Box-Muller in double, rounded to float; magnitude below 6.67).  Each
 * block gives four; the counter's first two words are incremented as one 64-bit number from block
 * to block.  The result is bit-identical on every machine. */
void philox_normals(struct philox_key key, struct philox_block counter, int64_t count, float *out);

#endif
