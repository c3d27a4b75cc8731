/* Tests of base/dtype: the tables; every 16-bit pattern both ways; rounding against a reference in
 * double.
 *
 * The reference shares nothing with the code under test: it decodes patterns with ldexp() and
 * rounds with nearbyint() on multiples of the format's quantum, both exact in double.
 */
#include "base/dtype.h"

#include <math.h>
#include <string.h>

#include "tests/unit/unit_main.h"

struct format {
    const char *name;
    int fraction_bits;
    int exponent_min; /* of the smallest normal value */
    int exponent_max; /* of the largest finite value */
    uint16_t infinity;
    uint16_t (*from_f32)(float value);
    float (*to_f32)(uint16_t bits);
};

static const struct format formats[2] = {
    {"bf16", 7, -126, 127, 0x7f80, bf16_from_f32, bf16_to_f32},
    {"f16", 10, -14, 15, 0x7c00, f16_from_f32, f16_to_f32},
};

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static float value_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Returns the value of a pattern that is not NaN. */
static double reference_decode(const struct format *format, uint16_t bits)
{
    const int magnitude = bits & 0x7fff;
    const int biased = magnitude >> format->fraction_bits;
    const int fraction = magnitude & ((1 << format->fraction_bits) - 1);
    double value;
    if (magnitude == format->infinity)
        value = INFINITY;
    else if (biased == 0)
        value = ldexp(fraction, format->exponent_min - format->fraction_bits);
    else
        value = ldexp(fraction + (1 << format->fraction_bits),
                      biased - 1 + format->exponent_min - format->fraction_bits);
    return (bits & 0x8000) != 0 ? -value : value;
}

/* Returns `value` rounded to the format: to nearest, ties to even, overflow to infinity. */
static double reference_round(const struct format *format, double value)
{
    if (value == 0.0 || isinf(value))
        return value;
    int exponent;
    (void)frexp(value, &exponent); /* |value| is in [2^(exponent-1), 2^exponent) */
    exponent = exponent - 1 < format->exponent_min ? format->exponent_min : exponent - 1;
    const double quantum = ldexp(1.0, exponent - format->fraction_bits);
    const double rounded = nearbyint(value / quantum) * quantum;
    return fabs(rounded) >= ldexp(1.0, format->exponent_max + 1) ? copysign(INFINITY, value)
                                                                 : rounded;
}

static void rounding_case(const struct format *format, float value)
{
    const uint16_t got = format->from_f32(value);
    if (isnan(value)) {
        const int quiet = 1 << (format->fraction_bits - 1);
        ck_assert_msg((got & 0x7fff) > format->infinity && (got & quiet) != 0,
                      "%s: NaN %08x gave %04x", format->name, bits_of(value), got);
        ck_assert_int_eq(got >> 15, bits_of(value) >> 31);
        return;
    }
    const double want = reference_round(format, (double)value);
    const bool is_nan = (got & 0x7fff) > format->infinity;
    ck_assert_msg(!is_nan && reference_decode(format, got) == want &&
                      (got >> 15) == (bits_of(value) >> 31),
                  "%s: %a gave %04x, expected %a", format->name, (double)value, got, want);
}

TEST_LOOP(every_pattern_survives, 2)
{
    const struct format *format = &formats[_i];
    for (uint32_t i = 0; i < 65536; i++) {
        const uint16_t bits = (uint16_t)i;
        const float wide = format->to_f32(bits);
        const uint16_t back = format->from_f32(wide);
        if ((bits & 0x7fff) > format->infinity) {
            ck_assert_msg(isnan(wide), "%s: NaN %04x widened to %a", format->name, bits,
                          (double)wide);
            ck_assert_uint_eq(back, bits | 1u << (format->fraction_bits - 1));
        } else {
            ck_assert_msg((double)wide == reference_decode(format, bits), "%s: %04x widened to %a",
                          format->name, bits, (double)wide);
            ck_assert_uint_eq(bits_of(wide) >> 31, i >> 15);
            ck_assert_uint_eq(back, bits);
        }
    }
}

/* Tests every tie between two neighbours, the values one fp32 step next to it, and those next to
 * the patterns themselves. */
TEST_LOOP(ties_and_their_neighbours, 2)
{
    const struct format *format = &formats[_i];
    for (uint32_t i = 0; i < format->infinity; i++) {
        const double low = reference_decode(format, (uint16_t)i);
        const double high = i + 1 < format->infinity ? reference_decode(format, (uint16_t)(i + 1))
                                                     : ldexp(1.0, format->exponent_max + 1);
        const double middle = low + (high - low) / 2.0;
        const float tie = (float)middle;
        /* bf16's first ties are fp32 subnormals, and are exact as well. */
        ck_assert((double)tie == middle);
        const float candidates[] = {tie, nextafterf(tie, INFINITY), nextafterf(tie, 0.0f),
                                    (float)low, nextafterf((float)low, INFINITY)};
        for (size_t j = 0; j < sizeof candidates / sizeof candidates[0]; j++) {
            rounding_case(format, candidates[j]);
            rounding_case(format, -candidates[j]);
        }
        const uint16_t even = (i & 1) == 0 ? (uint16_t)i : (uint16_t)(i + 1);
        ck_assert_uint_eq(format->from_f32(tie), even);
    }
}

/* A NaN whose payload is dropped stays NaN. */
TEST(nans_stay_nans)
{
    ck_assert_uint_eq(bf16_from_f32(value_of(0x7f800001u)), 0x7fc0);
    ck_assert_uint_eq(f16_from_f32(value_of(0xff800001u)), 0xfe00);
}

TEST(convert_all_pairs)
{
    enum { COUNT = 1001 };
    static const enum dtype kinds[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16};
    float wide[COUNT];
    for (int i = 0; i < COUNT; i++)
        wide[i] = ldexpf((float)(i * 37 % 4093) + 0.3f, i % 40 - 30) * (i % 2 == 0 ? 1.0f : -1.0f);
    for (int a = 0; a < 3; a++) {
        union {
            float f32[COUNT];
            uint16_t half[COUNT];
        } in, out, again;
        dtype_convert(&in, kinds[a], wide, DTYPE_F32, COUNT);
        for (int b = 0; b < 3; b++) {
            memset(&out, 0xee, sizeof out);
            dtype_convert(&out, kinds[b], &in, kinds[a], COUNT - 1);
            for (int i = 0; i < COUNT - 1; i++) {
                const float value = a == 0   ? in.f32[i]
                                    : a == 1 ? bf16_to_f32(in.half[i])
                                             : f16_to_f32(in.half[i]);
                if (b == 0)
                    ck_assert_uint_eq(bits_of(out.f32[i]), bits_of(value));
                else
                    ck_assert_uint_eq(out.half[i],
                                      b == 1 ? bf16_from_f32(value) : f16_from_f32(value));
            }
            const unsigned char *guard =
                (const unsigned char *)&out + (COUNT - 1) * dtype_size_bytes(kinds[b]);
            ck_assert_uint_eq(*guard, 0xee); /* nothing past `count` */
        }
        again = in;
        dtype_convert(&again, kinds[a], &again, kinds[a], COUNT); /* onto itself */
        ck_assert_mem_eq(&again, &in, COUNT * dtype_size_bytes(kinds[a]));
    }
    dtype_convert(NULL, DTYPE_F32, NULL, DTYPE_F32, 0);
    dtype_convert(NULL, DTYPE_BF16, NULL, DTYPE_F32, 0);
}
