/* Philox4x32-10, and the few distributions that the program draws from.
 *
 * Ten rounds of two 32 x 32 -> 64 bit multiplications (Salmon, Moraes, Dror, Shaw, SC 2011,
 * section 3.3; the constants are from the paper).  Everything is a pure function of its arguments.
 * The logarithms and angles of normal values are computed here because math libraries differ in the
 * last bit.
 */
#include "base/rng.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#define TWO_PI 6.283185307179586476925286766559
#define SQRT_2 1.4142135623730951
#define LN_2 0.6931471805599453
#define LANES 16
#define HIGHEST_BIT UINT32_C(0x80000000)
#define EIGHTH_TURN UINT32_C(0x20000000)
#define DOUBLE_EXPONENT_SHIFT 52
#define DOUBLE_EXPONENT_BIAS 1023
#define DOUBLE_FRACTION_MASK ((UINT64_C(1) << DOUBLE_EXPONENT_SHIFT) - 1)

struct philox_key philox_key_make(uint64_t seed, enum rng_purpose purpose)
{
    assert((unsigned)purpose < 256);
    return philox_key_of((uint32_t)seed, (uint32_t)(seed >> 32), (uint32_t)purpose);
}

struct philox_block philox4x32_10(struct philox_key key, struct philox_block counter)
{
    struct philox_block out;
    philox_words(key, counter.word[0], counter.word[1], counter.word[2], counter.word[3], out.word);
    return out;
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

/* The functions below process LANES numbers at a time, in loops that compilers vectorize. */

/* out = -2 ln((a + 1) / 2^32), with a relative error below 1e-15: ln x = 2 artanh((m - 1) / (m +
 * 1)) + e ln 2, with the series up to the 19th power and m in [sqrt(1/2), sqrt(2)). */
static void lanes_log(const uint32_t a[LANES], double out[LANES])
{
    static const double parts[] = {1.0 / 17.0, 1.0 / 15.0, 1.0 / 13.0, 1.0 / 11.0, 1.0 / 9.0,
                                   1.0 / 7.0,  1.0 / 5.0,  1.0 / 3.0,  1.0};
    double m[LANES], exponent[LANES];
    for (int i = 0; i < LANES; i++) {
        /* Exact, and a normal number, so that its exponent can be read and replaced. */
        const double value = (double)(int32_t)(a[i] ^ HIGHEST_BIT) + 0x1.00000002p31;
        uint64_t bits;
        memcpy(&bits, &value, sizeof bits);
        exponent[i] =
            (double)((int32_t)(bits >> DOUBLE_EXPONENT_SHIFT) - DOUBLE_EXPONENT_BIAS - 32);
        bits = (bits & DOUBLE_FRACTION_MASK) | (uint64_t)DOUBLE_EXPONENT_BIAS
                                                   << DOUBLE_EXPONENT_SHIFT;
        memcpy(&m[i], &bits, sizeof bits);
    }
    for (int i = 0; i < LANES; i++) {
        const double half = m[i] * 0.5, next = exponent[i] + 1.0;
        exponent[i] = m[i] > SQRT_2 ? next : exponent[i];
        m[i] = m[i] > SQRT_2 ? half : m[i];
    }
    for (int i = 0; i < LANES; i++) {
        const double s = (m[i] - 1.0) / (m[i] + 1.0), t = s * s;
        double sum = 1.0 / 19.0;
        for (size_t part = 0; part < sizeof parts / sizeof parts[0]; part++)
            sum = sum * t + parts[part];
        out[i] = -2.0 * (exponent[i] * LN_2 + 2.0 * s * sum);
    }
}

/* cos and sin of turns / 2^32 of a circle: Taylor series on an eighth of a turn around a multiple
 * of a quarter turn. */
static void lanes_circle(const uint32_t turns[LANES], double out_cos[LANES], double out_sin[LANES])
{
    static const double parts[][2] = {{1.0 / 20922789888000.0, 1.0 / 355687428096000.0},
                                      {-1.0 / 87178291200.0, -1.0 / 1307674368000.0},
                                      {1.0 / 479001600.0, 1.0 / 6227020800.0},
                                      {-1.0 / 3628800.0, -1.0 / 39916800.0},
                                      {1.0 / 40320.0, 1.0 / 362880.0},
                                      {-1.0 / 720.0, -1.0 / 5040.0},
                                      {1.0 / 24.0, 1.0 / 120.0},
                                      {-1.0 / 2.0, -1.0 / 6.0},
                                      {1.0, 1.0}}; /* of cos and of sin */
    for (int i = 0; i < LANES; i++) {
        const uint32_t quarter = (turns[i] + EIGHTH_TURN) >> 30;
        const double x = TWO_PI * 0x1p-32 * (double)(int32_t)(turns[i] - (quarter << 30)),
                     t = x * x;
        double c = 0.0, s = 0.0;
        for (size_t part = 0; part < sizeof parts / sizeof parts[0]; part++) {
            c = c * t + parts[part][0];
            s = s * t + parts[part][1];
        }
        s *= x;
        const double first = (quarter & 1) != 0 ? s : c, second = (quarter & 1) != 0 ? c : s;
        const double first_sign = 1.0 - (double)(int32_t)((quarter + 1) & 2),
                     second_sign = 1.0 - (double)(int32_t)(quarter & 2);
        out_cos[i] = first_sign * first;
        out_sin[i] = second_sign * second;
    }
}

/* Box-Muller: two normal values from two words, with a radius from `a`, in (0, 1], and an angle
 * from `b`, in [0, 1). Only additions, multiplications, divisions and square roots, so that initial
 * weights are the same on every machine. */
static void lanes_normal(const uint32_t a[LANES], const uint32_t b[LANES], float out[2 * LANES])
{
    double square[LANES], c[LANES], s[LANES];
    lanes_log(a, square);
    lanes_circle(b, c, s);
    for (int i = 0; i < LANES; i++) {
        const double radius = sqrt(square[i]);
        out[2 * i] = (float)(radius * c[i]);
        out[2 * i + 1] = (float)(radius * s[i]);
    }
}

void philox_normals(struct philox_key key, struct philox_block counter, int64_t count, float *out)
{
    uint64_t number = (uint64_t)counter.word[1] << 32 | counter.word[0];
    for (int64_t done = 0; done < count; done += 2 * LANES) {
        uint32_t a[LANES], b[LANES];
        float values[2 * LANES];
        for (int i = 0; i < LANES; i += 2) {
            const struct philox_block x = philox4x32_10(
                key, (struct philox_block){{(uint32_t)number, (uint32_t)(number >> 32),
                                            counter.word[2], counter.word[3]}});
            a[i] = x.word[0];
            b[i] = x.word[1];
            a[i + 1] = x.word[2];
            b[i + 1] = x.word[3];
            number++;
        }
        lanes_normal(a, b, values);
        const int64_t left = count - done;
        memcpy(out + done, values, (size_t)(left < 2 * LANES ? left : 2 * LANES) * sizeof *out);
    }
}
