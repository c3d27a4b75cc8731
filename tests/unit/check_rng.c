/* Tests of base/rng: published vectors, keys, and what is made of the words.
 *
 * The known answers are those of Random123's kat_vectors for philox4x32-10.
 */
#include "base/rng.h"

#include <math.h>

#include "tests/unit/unit_main.h"

static const struct {
    struct philox_block counter;
    struct philox_key key;
    struct philox_block answer;
} vectors[] = {
    {{{0, 0, 0, 0}}, {{0, 0}}, {{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}}},
    {{{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}},
     {{0xffffffff, 0xffffffff}},
     {{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}}},
    {{{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}},
     {{0xa4093822, 0x299f31d0}},
     {{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}}},
};

TEST_LOOP(known_answers, 3)
{
    const struct philox_block got = philox4x32_10(vectors[_i].key, vectors[_i].counter);
    for (int j = 0; j < 4; j++)
        ck_assert_uint_eq(got.word[j], vectors[_i].answer.word[j]);
}

/* For seeds below 2^56, the pair (seed, purpose) can be read back from the key. */
TEST(keys_are_distinct)
{
    static const uint64_t seeds[] = {0,
                                     1,
                                     1337,
                                     0xffffffff,
                                     UINT64_C(1) << 32,
                                     UINT64_C(7) << 32,
                                     UINT64_C(0x00ffffffffffffff),
                                     UINT64_C(0x0012345678abcdef)};
    for (size_t i = 0; i < sizeof seeds / sizeof seeds[0]; i++) {
        for (int purpose = RNG_INIT; purpose <= RNG_STATES; purpose++) {
            const struct philox_key key = philox_key_make(seeds[i], (enum rng_purpose)purpose);
            ck_assert_uint_eq(key.word[1] & 255u, (unsigned)purpose);
            ck_assert_uint_eq((uint64_t)(key.word[1] >> 8) << 32 | key.word[0], seeds[i]);
        }
    }
    /* Larger seeds still differ for one purpose. */
    const struct philox_key a = philox_key_make(UINT64_C(0xff00000000000000), RNG_INIT);
    const struct philox_key b = philox_key_make(UINT64_C(0xfe00000000000000), RNG_INIT);
    ck_assert_uint_ne(a.word[1], b.word[1]);
}

TEST(uniform_numbers_have_53_bits)
{
    ck_assert(philox_uniform(0, 0) == 0.0);
    ck_assert(philox_uniform(0xffffffff, 0xffffffff) == 1.0 - 0x1p-53);
    ck_assert(philox_uniform(0x80000000, 0) == 0.5);
    ck_assert(philox_uniform(0, 0x800) == 0x1p-53);
    ck_assert(philox_uniform(0, 0x7ff) == 0.0);
}

/* Computes the upper half of the 128-bit product, with digits of 16 bits. */
static uint64_t reference_below(uint64_t bits, uint64_t bound)
{
    uint32_t digits[8] = {0};
    for (int i = 0; i < 4; i++) {
        uint32_t carry = 0;
        for (int j = 0; j < 4; j++) {
            const uint32_t a = (uint32_t)(bits >> 16 * i & 0xffff);
            const uint32_t b = (uint32_t)(bound >> 16 * j & 0xffff);
            const uint32_t digit = a * b + digits[i + j] + carry; /* at most 2^32 - 1 */
            digits[i + j] = digit & 0xffff;
            carry = digit >> 16;
        }
        digits[i + 4] = carry;
    }
    return (uint64_t)digits[7] << 48 | (uint64_t)digits[6] << 32 | (uint64_t)digits[5] << 16 |
           digits[4];
}

TEST(integers_are_scaled_to_the_bound)
{
    static const uint64_t bounds[] = {1,
                                      2,
                                      3,
                                      50257,
                                      0xffffffff,
                                      UINT64_C(1) << 32,
                                      UINT64_C(0x123456789),
                                      INT64_MAX,
                                      UINT64_MAX - 1,
                                      UINT64_MAX};
    const struct philox_key key = philox_key_make(unit_seed(), RNG_EPOCH);
    for (size_t i = 0; i < sizeof bounds / sizeof bounds[0]; i++) {
        ck_assert_uint_eq(philox_below(0, 0, bounds[i]), 0);
        ck_assert_uint_eq(philox_below(0xffffffff, 0xffffffff, bounds[i]), bounds[i] - 1);
        for (uint32_t j = 0; j < 5000; j++) {
            const struct philox_block block =
                philox4x32_10(key, (struct philox_block){{j, (uint32_t)i, 0, 0}});
            const uint64_t got = philox_below(block.word[0], block.word[1], bounds[i]);
            ck_assert_uint_lt(got, bounds[i]);
            ck_assert_uint_eq(
                got, reference_below((uint64_t)block.word[0] << 32 | block.word[1], bounds[i]));
        }
    }
}

TEST(normal_values)
{
    /* Computed in another language from the first known answer. */
    static const double wanted[4] = {0.9911376790966604, -0.9246625882436951, -0.6176089596525953,
                                     -0.4820685869111552};
    float got[4];
    philox_normals(vectors[0].key, vectors[0].counter, 4, got);
    for (int i = 0; i < 4; i++)
        ck_assert_double_le(fabs((double)got[i] - wanted[i]), fabs(wanted[i]) * 0x1p-23);
}
