/* Tests of src/base/utf8.c: every character in both directions, and every kind of invalid byte. */
#include "base/utf8.h"

#include <string.h>

#include "tests/unit/unit_main.h"

TEST(utf8_every_character_round_trips)
{
    for (uint32_t value = 0; value < UTF8_CODE_POINTS; value++) {
        char text[4];
        uint32_t back = 0;
        if (!utf8_is_scalar(value))
            continue;
        const size_t length = utf8_encode(value, text);
        const int used = utf8_decode((const unsigned char *)text, length, &back);
        if (used != (int)length || back != value)
            ck_abort_msg("U+%04X: %zu bytes, %d back, U+%04X", value, length, used, back);
        for (size_t cut = 0; cut < length; cut++)
            ck_assert_int_eq(utf8_decode((const unsigned char *)text, cut, &back), UTF8_INCOMPLETE);
    }
    ck_assert(!utf8_is_scalar(0xD800) && !utf8_is_scalar(0xDFFF) && !utf8_is_scalar(0x110000));
}

/* Tries all two-byte and three-byte beginnings: exactly the encodings of valid characters decode. */
TEST(utf8_decodes_nothing_else)
{
    uint32_t value = 0, valid = 0;
    for (unsigned i = 0; i < 1u << 24; i++) {
        const unsigned char bytes[3] = {(unsigned char)(i >> 16), (unsigned char)(i >> 8 & 0xFF),
                                        (unsigned char)(i & 0xFF)};
        if (utf8_decode(bytes, 3, &value) == 3)
            valid++;
    }
    ck_assert_uint_eq(valid, 0x10000 - 0x800 - 0x800);
}

TEST(utf8_bad_bytes_are_invalid)
{
    static const char *const bad[] = {"\x80",
                                      "\xBF",
                                      "\xC0\x80",
                                      "\xC1\xBF",
                                      "\xC3(",
                                      "\xE0\x9F",
                                      "\xED\xA0\x80",
                                      "\xE2\x82(",
                                      "\xF0\x8F\xBF\xBF",
                                      "\xF4\x90\x80\x80",
                                      "\xF5",
                                      "\xFF",
                                      "\xF0\x9F\x98\x41",
                                      "\xFE"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        uint32_t value = 7;
        ck_assert_int_eq(utf8_decode((const unsigned char *)bad[i], strlen(bad[i]), &value), UTF8_INVALID);
        ck_assert_uint_eq(value, 7);
    }
}

/* Compares with a count character by character, with invalid bytes at every offset of a word. */
TEST(utf8_counts)
{
    static const char text[] = "plain ASCII text, long enough \xC3\xA9t\xC3\xA9 \xE6\x97\xA5 \xF0\x9F\x98\x80 end";
    const size_t count = sizeof text - 1;
    unsigned char bytes[sizeof text];
    memcpy(bytes, text, sizeof text);
    ck_assert_uint_eq(utf8_count_invalid(bytes, count), 0);
    ck_assert_uint_eq(utf8_count_leads(bytes, count), count - 7);
    ck_assert_uint_eq(utf8_count_invalid(bytes, 0), 0);
    for (size_t at = 0; at < 29; at++) {
        bytes[at] = 0x80;
        ck_assert_uint_eq(utf8_count_invalid(bytes, count), 1);
        ck_assert_uint_eq(utf8_count_leads(bytes, count), count - 8);
        bytes[at] = (unsigned char)text[at];
    }
    ck_assert_uint_eq(utf8_count_invalid((const unsigned char *)"a\xE6\x97", 3), 2);
    ck_assert_uint_eq(utf8_count_invalid((const unsigned char *)"\xFF\xFE\xC0\x80", 4), 4);
}
