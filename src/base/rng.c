/* Philox4x32-10, and the few distributions that the program draws from.
 *
 * Ten rounds of two 32 x 32 -> 64 bit multiplications (Salmon, Moraes, Dror, Shaw, SC 2011, section 3.3; the constants
 * are those of the paper).  Everything is a pure function of its arguments.  Normal values use the C library's log,
 * sin and cos in double; the rounding to float hides their last-bit differences almost always, not always.
 */
#include "base/rng.h"

#include <assert.h>
#include <math.h>

#define TWO_PI 6.283185307179586476925286766559

struct philox_key philox_key_make(uint64_t seed, enum rng_purpose purpose)
{
    assert((unsigned)purpose < 256);
    /* The low half of the seed, and its high half turned by 8 bits over the purpose: the pair (seed, purpose) can be
     * read back from the key for every seed below 2^56. */
    const uint32_t high = (uint32_t)(seed >> 32);
    return (struct philox_key){{(uint32_t)seed, (high << 8 | high >> 24) ^ (uint32_t)purpose}};
}

struct philox_block philox4x32_10(struct philox_key key, struct philox_block counter)
{
    uint32_t k0 = key.word[0];
    uint32_t k1 = key.word[1];
    struct philox_block x = counter;
    for (int round = 0; round < 10; round++) {
        const uint64_t even = (uint64_t)0xd2511f53u * x.word[0];
        const uint64_t odd = (uint64_t)0xcd9e8d57u * x.word[2];
        x = (struct philox_block){{
            (uint32_t)(odd >> 32) ^ x.word[1] ^ k0,
            (uint32_t)odd,
            (uint32_t)(even >> 32) ^ x.word[3] ^ k1,
            (uint32_t)even,
        }};
        k0 += 0x9e3779b9u;
        k1 += 0xbb67ae85u;
    }
    return x;
}

double philox_uniform(uint32_t hi, uint32_t lo)
{
    const uint64_t bits = (uint64_t)hi << 32 | lo;
    return (double)(bits >> 11) * 0x1p-53;
}

uint64_t philox_below(uint32_t hi, uint32_t lo, uint64_t bound)
{
    assert(bound > 0);
    /* The upper 64 bits of the 128-bit product (hi:lo) * bound, from four partial products. */
    const uint64_t bound_lo = bound & 0xffffffffu;
    const uint64_t bound_hi = bound >> 32;
    const uint64_t low = lo * bound_lo;
    const uint64_t middle = hi * bound_lo + (low >> 32); /* at most (2^32-1)^2 + 2^32-2: fits */
    const uint64_t cross = lo * bound_hi + (middle & 0xffffffffu);
    const uint64_t result = hi * bound_hi + (middle >> 32) + (cross >> 32);
    assert(result < bound);
    return result;
}

/* Two normal values from two words: radius from `a` in (0, 1], angle from `b` in [0, 1). */
static void normal2(uint32_t a, uint32_t b, float out[2])
{
    const double u = ((double)a + 1.0) * 0x1p-32;
    const double radius = sqrt(-2.0 * log(u));
    const double angle = TWO_PI * ((double)b * 0x1p-32);
    out[0] = (float)(radius * cos(angle));
    out[1] = (float)(radius * sin(angle));
}

void philox_normal4(struct philox_block block, float out[4])
{
    normal2(block.word[0], block.word[1], out);
    normal2(block.word[2], block.word[3], out + 2);
}
