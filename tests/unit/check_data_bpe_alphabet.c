/* Tests of src/data/bpe.c: the order of the bytes, in both directions, and characters outside the alphabet. */
#include "data/bpe.h"

#include "tests/unit/data_fixture.h"

/* The order of bytes_to_unicode() in encoder.py, from its description: printable bytes first, then the others in
 * order. */
TEST(alphabet_has_the_order_of_gpt2)
{
    int rank = 0;
    for (int pass = 0; pass < 2; pass++)
        for (int byte = 0; byte < 256; byte++) {
            const bool printable =
                (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || (byte >= 0xAE && byte <= 0xFF);
            if (printable == (pass == 0))
                ck_assert_int_eq(bpe_alphabet_byte(rank++), byte);
        }
    ck_assert_int_eq(rank, 256);
    ck_assert_int_eq(bpe_alphabet_byte(220), ' '); /* the id of the space in GPT-2 */
}

TEST(alphabet_goes_both_ways)
{
    char bytes[256], text[512], back[512];
    size_t count = 0;
    for (int i = 0; i < 256; i++)
        bytes[i] = (char)i;
    const size_t length = bpe_alphabet_write(bytes, 256, text);
    ck_assert_uint_eq(length, 2 * 256 - 94); /* only ! to ~ are one byte of UTF-8 */
    ck_assert(bpe_alphabet_read(text, length, back, &count));
    ck_assert_uint_eq(count, 256);
    ck_assert_mem_eq(back, bytes, 256);
    ck_assert_uint_eq(bpe_alphabet_write(" a\n", 3, text), 5);
    ck_assert_mem_eq(text,
                     "\xC4\xA0"
                     "a\xC4\x8A",
                     5);
}

TEST(alphabet_refuses_the_rest)
{
    static const char *const bad[] = {" ",        "a b",      "\n",           "\x7F", "\xC2\xA0",
                                      "\xC2\xAD", "\xC5\x84", "\xE2\x82\xAC", "\xFF", "\xC4"};
    char out[16];
    size_t count = 77;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        ck_assert_msg(!bpe_alphabet_read(bad[i], strlen(bad[i]), out, &count), "case %zu", i);
    ck_assert_uint_eq(count, 77);
    ck_assert(bpe_alphabet_read("\xC5\x83", 2, out, &count)); /* U+0143 is the last */
    ck_assert_uint_eq((unsigned char)out[0], 0xAD);
    ck_assert(bpe_alphabet_read("", 0, out, &count));
    ck_assert_uint_eq(count, 0);
}
