/* Tests of src/data/tokenizer_encoder.c: round trips, special tokens, its cache.
 * tests/e2e/tokenizer_json.py has the ids of random texts. */
#include "base/utf8.h"
#include "data/tokenizer.h"
#include "data/tokenizer_encoder.h"
#include "tests/unit/bpe_fixture.h"

static size_t run(struct tokenizer_encoder *encoder, const char *text, size_t count,
                  enum tokenizer_special special, int32_t *ids)
{
    size_t id_count = 0;
    struct tokenizer_fault fault;
    ck_assert_int_eq(tokenizer_encoder_run(encoder, text, count, special, ids, &id_count, &fault),
                     GT_OK);
    return id_count;
}

/* Expects that the bytes of all ids are the text. */
static void expect_decoded(const struct tokenizer *tokenizer, const int32_t *ids, size_t id_count,
                           const char *text, size_t count)
{
    size_t at = 0;
    for (size_t i = 0; i < id_count; i++) {
        char scratch[4];
        const char *bytes = NULL;
        const size_t length = tokenizer_token_bytes(tokenizer, ids[i], scratch, &bytes);
        ck_assert(length > 0 && at + length <= count && memcmp(text + at, bytes, length) == 0);
        at += length;
    }
    ck_assert_uint_eq(at, count);
}

/* Text shown while it is generated is that of the bytes one by one, however they are divided into
 * tokens. */
TEST(stream_shows_the_bytes)
{
    struct data_fixture fixture;
    struct tokenizer *bytes = NULL;
    static char text[4000], shown[4 * sizeof text], expected[4 * sizeof text],
        piece[TOKENIZER_TEXT_MAX];
    static int32_t ids[sizeof text];
    struct tokenizer_stream stream = {.held_count = 0}, plain = {.held_count = 0};
    size_t count = 0, at = 0, expected_at = 0, longest = 0;
    fixture_open(&fixture);
    struct tokenizer *tokenizer = make_trained(&fixture, 400);
    ck_assert_int_eq(tokenizer_create_bytes(fixture.mem, &bytes), GT_OK);
    random_text(8, true, text, sizeof text);
    ck_assert_int_eq(tokenizer_encode_prompt(tokenizer, text, sizeof text, "text", ids, &count),
                     GT_OK);
    for (size_t i = 0; i < count; i++) {
        const size_t length = tokenizer_stream_push(tokenizer, &stream, ids[i], piece);
        memcpy(shown + at, piece, length);
        at += length;
        longest = length > longest ? length : longest;
    }
    at += tokenizer_stream_end(&stream, shown + at);
    for (size_t i = 0; i < sizeof text; i++)
        expected_at +=
            tokenizer_stream_push(bytes, &plain, (unsigned char)text[i], expected + expected_at);
    expected_at += tokenizer_stream_end(&plain, expected + expected_at);
    ck_assert_uint_eq(at, expected_at);
    ck_assert_mem_eq(shown, expected, at);
    ck_assert_uint_gt(longest, 4);
    hostmem_free(bytes);
    hostmem_free(tokenizer);
    fixture_close(&fixture);
}

TEST(encoder_special_tokens)
{
    static const char text[] = "x<|endoftext|>\n<|endoftext|><|endoftext|";
    struct data_fixture fixture;
    struct tokenizer_encoder *encoder = NULL;
    int32_t ids[64], direct[64];
    size_t direct_count = 0;
    fixture_open(&fixture);
    struct tokenizer *tokenizer = make_trained(&fixture, 300);
    const int32_t eot = tokenizer_eot(tokenizer);
    ck_assert_int_eq(eot, tokenizer->vocab_size - 1);
    ck_assert_int_eq(tokenizer_encoder_create(fixture.mem, tokenizer, &encoder), GT_OK);
    size_t count = run(encoder, text, strlen(text), TOKENIZER_SPECIAL_AS_TEXT, ids);
    for (size_t i = 0; i < count; i++)
        ck_assert_int_ne(ids[i], eot);
    expect_decoded(tokenizer, ids, count, text, strlen(text));
    count = run(encoder, text, strlen(text), TOKENIZER_SPECIAL_ALLOWED, ids);
    ck_assert_int_eq(ids[0], tokenizer_id_of(tokenizer, 'x'));
    ck_assert_int_eq(ids[1], eot);
    ck_assert_int_eq(ids[2], tokenizer_id_of(tokenizer, '\n'));
    ck_assert_int_eq(ids[3], eot);
    for (size_t i = 4; i < count; i++)
        ck_assert_int_ne(ids[i], eot);
    expect_decoded(tokenizer, ids, count, text, strlen(text));
    ck_assert_int_eq(
        tokenizer_encode_prompt(tokenizer, text, strlen(text), "start", direct, &direct_count),
        GT_OK);
    ck_assert_uint_eq(direct_count, count);
    ck_assert_mem_eq(ids, direct, count * sizeof ids[0]);
    ck_assert_uint_gt(run(encoder, "<|endoftext|>", 13, TOKENIZER_SPECIAL_AS_TEXT, ids), 1);
    ck_assert_int_eq(
        tokenizer_encode_prompt(tokenizer, "<|endoftext|>", 13, "start", direct, &direct_count),
        GT_OK);
    ck_assert_uint_eq(direct_count, 1);
    hostmem_free(encoder);
    hostmem_free(tokenizer);
    fixture_close(&fixture);
}

/* Of two special tokens with the same beginning, the longer one is taken. */
TEST(encoder_longest_special_token)
{
    struct data_fixture fixture;
    struct tokenizer_encoder *encoder = NULL;
    struct tokenizer *tokenizer = NULL;
    struct bpe *bpe = NULL;
    int32_t ids[64];
    fixture_open(&fixture);
    const struct bpe_spec spec = {.vocab_size = 259, .text_bytes = 300, .rank = BPE_RANK_MERGE};
    ck_assert_int_eq(bpe_create(fixture.mem, &spec, &bpe), GT_OK);
    for (int i = 0; i < 256; i++) {
        const char byte = (char)i;
        ck_assert_int_eq(bpe_add_token(bpe, i, &byte, 1, false), BPE_ADDED);
    }
    ck_assert_int_eq(bpe_add_token(bpe, 256, "<a><b>", 6, true), BPE_ADDED);
    ck_assert_int_eq(bpe_add_token(bpe, 257, "<a>", 3, true), BPE_ADDED);
    ck_assert_int_eq(bpe_add_token(bpe, 258, "<b>", 3, true), BPE_ADDED);
    ck_assert_int_eq(bpe_finish(bpe, "here"), GT_OK);
    ck_assert_int_eq(tokenizer_create_bpe(fixture.mem, bpe, &tokenizer), GT_OK);
    ck_assert_int_eq(tokenizer_eot(tokenizer), -1);
    ck_assert_int_eq(tokenizer_encoder_create(fixture.mem, tokenizer, &encoder), GT_OK);
    const size_t count = run(encoder, "<a><b><a>x<b><", 14, TOKENIZER_SPECIAL_ALLOWED, ids);
    const int32_t expected[] = {256, 257, 'x', 258, '<'};
    ck_assert_uint_eq(count, 5);
    ck_assert_mem_eq(ids, expected, sizeof expected);
    hostmem_free(encoder);
    hostmem_free(tokenizer);
    fixture_close(&fixture);
}

/* Pieces that are prefixes of others, so many that some share an entry of the cache. */
TEST(encoder_cache_tells_pieces_apart)
{
    enum { LONGEST = 30 };
    struct data_fixture fixture;
    struct tokenizer_encoder *encoder = NULL;
    static char text[LONGEST * LONGEST];
    static int32_t ids[sizeof text];
    fixture_open(&fixture);
    struct tokenizer *tokenizer = make_trained(&fixture, 400);
    ck_assert_int_eq(tokenizer_encoder_create(fixture.mem, tokenizer, &encoder), GT_OK);
    for (uint32_t i = 0; i < 1500; i++) {
        char digits[LONGEST];
        size_t count = 0;
        for (uint32_t k = 0; k < LONGEST; k++)
            digits[k] = (char)('0' + random_below(90, i * LONGEST + k, 10));
        for (size_t length = LONGEST; length > 0; length--) {
            memcpy(text + count, digits, length);
            text[count + length] = '\n';
            count += length + 1;
        }
        expect_decoded(tokenizer, ids, run(encoder, text, count, TOKENIZER_SPECIAL_AS_TEXT, ids),
                       text, count);
    }
    hostmem_free(encoder);
    hostmem_free(tokenizer);
    fixture_close(&fixture);
}
