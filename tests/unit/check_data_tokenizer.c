/* Tests of src/data/tokenizer.c: encoding, streamed decoding, the file, and every kind of bad file.
 */
#include "data/tokenizer.h"

#include "base/rng.h"
#include "base/utf8.h"
#include "data/tokenizer_encoder.h"
#include "tests/unit/data_fixture.h"

static const uint32_t sample_points[] = {'\n', ' ', 'a', 'b', 0xE9, 0x4E2D, 0x1F600};

static struct tokenizer *make_chars(struct data_fixture *fixture)
{
    struct tokenizer *tokenizer = NULL;
    ck_assert_int_eq(tokenizer_create_chars(fixture->mem, sample_points, 7, &tokenizer), GT_OK);
    return tokenizer;
}

/* Pushes the ids and compares the text. */
static void expect_decoded(const struct tokenizer *tokenizer, const int32_t *ids, size_t count,
                           const char *expected)
{
    struct tokenizer_stream stream = {.held_count = 0};
    char text[256] = "", piece[TOKENIZER_TEXT_MAX];
    for (size_t i = 0; i < count; i++) {
        ck_assert_uint_eq(tokenizer_stream_push(tokenizer, &stream, ids[i], piece), strlen(piece));
        strcat(text, piece);
    }
    tokenizer_stream_end(&stream, piece);
    strcat(text, piece);
    ck_assert_str_eq(text, expected);
}

TEST(tokenizer_chars_encode_and_decode)
{
    struct data_fixture fixture;
    fixture_open(&fixture);
    struct tokenizer *tokenizer = make_chars(&fixture);
    const char *text = "ab \n\xC3\xA9\xE4\xB8\xAD\xF0\x9F\x98\x80";
    int32_t ids[32];
    size_t count = 0;
    ck_assert_int_eq(tokenizer->vocab_size, 7);
    ck_assert_int_eq(tokenizer_encode_prompt(tokenizer, text, strlen(text), "start", ids, &count),
                     GT_OK);
    const int32_t expected[] = {2, 3, 1, 0, 4, 5, 6};
    ck_assert_uint_eq(count, 7);
    ck_assert_int_eq(memcmp(ids, expected, sizeof expected), 0);
    expect_decoded(tokenizer, ids, count, text);
    ck_assert_int_eq(tokenizer_id_of(tokenizer, 'c'), -1);
    ck_assert_int_eq(tokenizer_id_of(tokenizer, 0x10FFFF), -1);
    ck_assert_int_eq(tokenizer_encode_prompt(tokenizer, "abc", 3, "start", ids, &count), GT_DATA);
    FIXTURE_SAYS(&fixture, "start: the character U+0063 at byte 2");
    ck_assert_int_eq(tokenizer_encode_prompt(tokenizer, "a\xFF", 2, "start", ids, &count), GT_DATA);
    FIXTURE_SAYS(&fixture, "byte 1 is not UTF-8");
    ck_assert_int_eq(tokenizer_encode_prompt(tokenizer, "a\xC3", 2, "start", ids, &count), GT_DATA);
    const int32_t outside[] = {2, 7, -1, 3};
    expect_decoded(tokenizer, outside, 4,
                   "a\xEF\xBF\xBD\xEF\xBF\xBD"
                   "b");
    hostmem_free(tokenizer);
    fixture_close(&fixture);
}

TEST(tokenizer_bytes_decode_as_a_stream)
{
    struct data_fixture fixture;
    struct tokenizer *tokenizer = NULL;
    struct tokenizer_stream stream = {.held_count = 0};
    char piece[TOKENIZER_TEXT_MAX];
    fixture_open(&fixture);
    ck_assert_int_eq(tokenizer_create_bytes(fixture.mem, &tokenizer), GT_OK);
    ck_assert_uint_eq(tokenizer_stream_push(tokenizer, &stream, 0xE4, piece), 0);
    ck_assert_uint_eq(tokenizer_stream_push(tokenizer, &stream, 0xB8, piece), 0);
    ck_assert_uint_eq(tokenizer_stream_push(tokenizer, &stream, 0xAD, piece), 3);
    ck_assert_str_eq(piece, "\xE4\xB8\xAD");
    const int32_t broken[] = {'a', 0xF0, 0x9F, 0x98, 'b', 0xFF, 0xE4, 0xB8};
    expect_decoded(tokenizer, broken, 8,
                   "a\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"
                   "b\xEF\xBF\xBD\xEF\xBF\xBD");
    int32_t all[256], ids[256];
    unsigned char bytes[256];
    size_t count = 0;
    for (int i = 0; i < 256; i++) {
        bytes[i] = (unsigned char)i;
        all[i] = i;
    }
    ck_assert_int_eq(
        tokenizer_encode_prompt(tokenizer, (const char *)bytes, 256, "start", ids, &count), GT_OK);
    ck_assert_uint_eq(count, 256);
    ck_assert_int_eq(memcmp(all, ids, sizeof ids), 0);
    hostmem_free(tokenizer);
    fixture_close(&fixture);
}

/* For any ids, the output is valid UTF-8 and within its bound. */
TEST(tokenizer_stream_is_always_valid)
{
    struct data_fixture fixture;
    struct tokenizer *tokenizer = NULL;
    struct tokenizer_stream stream = {.held_count = 0};
    fixture_open(&fixture);
    ck_assert_int_eq(tokenizer_create_bytes(fixture.mem, &tokenizer), GT_OK);
    for (uint32_t i = 0; i < 200000; i++) {
        static const unsigned char interesting[] = {0xE0, 0xA0, 0x80, 0xED, 0x9F, 0xF0,
                                                    0x90, 0xF4, 0x8F, 0xBF, 'a',  0xC2};
        const struct philox_block random =
            philox4x32_10(philox_key_make(unit_seed(), RNG_SAMPLE), (struct philox_block){{i}});
        const int32_t id = random.word[0] % 4 ? interesting[random.word[1] % sizeof interesting]
                                              : (int32_t)(random.word[1] % 258) - 1;
        char piece[TOKENIZER_TEXT_MAX];
        const size_t length = tokenizer_stream_push(tokenizer, &stream, id, piece);
        ck_assert_uint_lt(length, TOKENIZER_TEXT_MAX);
        ck_assert_uint_le(stream.held_count, 3);
        for (size_t at = 0; at < length;) {
            uint32_t value = 0;
            const int used = utf8_decode((const unsigned char *)piece + at, length - at, &value);
            ck_assert_int_gt(used, 0);
            at += (size_t)used;
        }
    }
    hostmem_free(tokenizer);
    fixture_close(&fixture);
}

TEST(tokenizer_bad_files_are_refused)
{
#define HEAD "{\"format\": \"gpt-train-tokenizer\", \"version\": 1, \"kind\": \"chars\", "
#define TAIL ", \"hash\": \"crc32c:00000000\"}"
    static const struct {
        const char *text, *says;
        enum gt_status status;
    } bad[] = {
        {"", "gpt_tokenizer.json", GT_DATA},
        {"{", "gpt_tokenizer.json", GT_DATA},
        {"{\"model\": 1}", "\"format\"", GT_DATA},
        {"{\"format\": \"other\"}", "\"format\": expected \"gpt-train-tokenizer\"", GT_DATA},
        {"{\"format\": \"gpt-train-tokenizer\", \"version\": 2, \"kind\": \"bytes\"}", "version 2",
         GT_UNSUPPORTED},
        {"{\"format\": \"gpt-train-tokenizer\", \"version\": 1, \"kind\": \"gpt2\"}", "\"gpt2\"",
         GT_UNSUPPORTED},
        {HEAD "\"vocab_size\": 2" TAIL, "\"vocabulary\"", GT_DATA},
        {HEAD "\"vocab_size\": 0, \"vocabulary\": []" TAIL, "\"vocabulary\"", GT_DATA},
        {HEAD "\"vocab_size\": 2, \"vocabulary\": [98, 97]" TAIL, "entry 1", GT_DATA},
        {HEAD "\"vocab_size\": 2, \"vocabulary\": [97, 97]" TAIL, "entry 1", GT_DATA},
        {HEAD "\"vocab_size\": 1, \"vocabulary\": [55296]" TAIL, "entry 0", GT_DATA},
        {HEAD "\"vocab_size\": 1, \"vocabulary\": [1114112]" TAIL, "entry 0", GT_DATA},
        {HEAD "\"vocab_size\": 1, \"vocabulary\": [-1]" TAIL, "entry 0", GT_DATA},
        {HEAD "\"vocab_size\": 1, \"vocabulary\": [\"a\"]" TAIL, "entry 0", GT_DATA},
        {HEAD "\"vocab_size\": 3, \"vocabulary\": [97, 98]" TAIL, "\"vocab_size\"", GT_DATA},
        {HEAD "\"vocab_size\": 2, \"vocabulary\": [97, 98]" TAIL, "\"hash\"", GT_DATA},
        {"\x80\x04\x95 pickle", "not valid JSON", GT_DATA},
    };
    struct data_fixture fixture;
    struct tokenizer *tokenizer = NULL;
    fixture_open(&fixture);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        const size_t lines = log_count(LOG_ERROR);
        fixture_write_text(&fixture, "gpt_tokenizer.json", bad[i].text);
        ck_assert_msg(tokenizer_open_dataset(fixture.mem, fixture.folder, &tokenizer) ==
                          bad[i].status,
                      "case %zu", i);
        ck_assert_ptr_null(tokenizer);
        ck_assert_uint_eq(log_count(LOG_ERROR), lines + 1);
        FIXTURE_SAYS(&fixture, "gpt_tokenizer.json");
        FIXTURE_SAYS(&fixture, bad[i].says);
    }
    fixture_close(&fixture);
}
