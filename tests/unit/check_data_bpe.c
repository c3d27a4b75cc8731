/* Tests of src/data/bpe.c: making a vocabulary, its refusals, and encoding against the plainest
 * method. */
#include "data/bpe.h"

#include "tests/unit/bpe_fixture.h"

/* Returns the 256 bytes in GPT-2's order, with room for `extra` more tokens. */
static struct bpe *make_bytes(struct data_fixture *fixture, size_t extra, size_t merges,
                              enum bpe_rank rank)
{
    struct bpe *bpe = NULL;
    const struct bpe_spec spec = {.vocab_size = 256 + extra,
                                  .text_bytes = 256 + 64 * extra,
                                  .merge_count = merges,
                                  .rank = rank};
    ck_assert_int_eq(bpe_create(fixture->mem, &spec, &bpe), GT_OK);
    for (int i = 0; i < 256; i++) {
        const char byte = (char)bpe_alphabet_byte(i);
        ck_assert_int_eq(bpe_add_token(bpe, i, &byte, 1, false), BPE_ADDED);
    }
    return bpe;
}

static void add(struct bpe *bpe, int32_t id, const char *text)
{
    ck_assert_int_eq(bpe_add_token(bpe, id, text, strlen(text), false), BPE_ADDED);
}

TEST(bpe_refuses_what_is_no_vocabulary)
{
    struct data_fixture fixture;
    fixture_open(&fixture);
    char long_text[BPE_TOKEN_BYTES_MAX + 1];
    memset(long_text, 'x', sizeof long_text);
    struct bpe *bpe = make_bytes(&fixture, 2, 1, BPE_RANK_MERGE);
    ck_assert_int_eq(bpe_add_token(bpe, 256, "", 0, false), BPE_TEXT_BAD);
    ck_assert_int_eq(bpe_add_token(bpe, 256, long_text, sizeof long_text, false), BPE_TEXT_BAD);
    ck_assert_int_eq(bpe_add_token(bpe, 256, long_text, 129, false),
                     BPE_TEXT_BAD); /* there is room for 128 bytes */
    ck_assert_int_eq(bpe_add_token(bpe, 256, "a", 1, false), BPE_TEXT_TAKEN);
    ck_assert_int_eq(bpe_add_token(bpe, 0, "ab", 2, false), BPE_ID_TAKEN);
    add(bpe, 256, "ab");
    ck_assert(!bpe_add_merge(bpe, bpe_find(bpe, "b", 1), bpe_find(bpe, "a", 1)));
    ck_assert_int_eq(bpe_find(bpe, "ba", 2), -1);
    ck_assert_int_eq(bpe_finish(bpe, "here"), GT_DATA);
    FIXTURE_SAYS(&fixture, "here: no token has the id 257, of 258");
    hostmem_free(bpe);

    /* tiktoken needs all bytes, tokenizers of merges need one. */
    const struct bpe_spec spec[] = {{.vocab_size = 1, .text_bytes = 1, .rank = BPE_RANK_TOKEN},
                                    {.vocab_size = 1, .text_bytes = 2, .rank = BPE_RANK_MERGE}};
    for (size_t i = 0; i < 2; i++) {
        ck_assert_int_eq(bpe_create(fixture.mem, &spec[i], &bpe), GT_OK);
        add(bpe, 0, i == 0 ? "a" : "ab");
        ck_assert_int_eq(bpe_finish(bpe, "here"), GT_DATA);
        FIXTURE_SAYS(&fixture, "here: the byte 0x00 is not a token");
        hostmem_free(bpe);
    }
    fixture_close(&fixture);
}

/* A vocabulary of "a", "b", "ab" and "?".  Bytes without a token are left out, and then "a" and "b"
 * are neighbours. */
TEST_LOOP(bytes_without_a_token, 3)
{
    static const struct {
        const char *text;
        size_t unknown;
        int32_t ids[3][8]; /* left out; each "?"; runs "?"; -1 ends them */
    } cases[] = {
        {"ab", 0, {{2, -1}, {2, -1}, {2, -1}}},
        {"a\x04\x06"
         "b",
         2,
         {{2, -1}, {0, 3, 3, 1, -1}, {0, 3, 1, -1}}},
        {"\x04"
         "a\x04",
         2,
         {{0, -1}, {3, 0, 3, -1}, {3, 0, 3, -1}}},
        {"\xFF\xFE", 2, {{-1}, {3, 3, -1}, {3, -1}}},
    };
    struct data_fixture fixture;
    struct bpe *bpe = NULL;
    struct bpe_scratch scratch = {.memory = NULL};
    const struct bpe_spec spec = {
        .vocab_size = 4, .text_bytes = 8, .merge_count = 1, .rank = BPE_RANK_MERGE};
    fixture_open(&fixture);
    ck_assert_int_eq(bpe_create(fixture.mem, &spec, &bpe), GT_OK);
    add(bpe, 0, "a");
    add(bpe, 1, "b");
    add(bpe, 2, "ab");
    add(bpe, 3, "?");
    ck_assert(bpe_add_merge(bpe, 0, 1));
    struct bpe_pipeline pipeline = bpe_pipeline_of_gpt2;
    pipeline.unknown = _i == 0 ? -1 : 3;
    pipeline.fuse_unknown = _i == 2;
    pipeline.json = "{}";
    ck_assert_int_eq(bpe_set_pipeline(bpe, &pipeline), GT_OK);
    ck_assert_int_eq(bpe_finish(bpe, "here"), GT_OK);
    ck_assert(bpe_lacks_bytes(bpe) && bpe_is_unknown(bpe, '\xFF') && !bpe_is_unknown(bpe, 'a'));
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int32_t ids[8] = {0};
        uint64_t counts[256] = {0};
        size_t count = 0, length = strlen(cases[i].text), expected = 0;
        ck_assert_int_eq(bpe_encode_piece(bpe, &scratch, cases[i].text, length, ids, &count),
                         GT_OK);
        while (cases[i].ids[_i][expected] >= 0)
            expected++;
        ck_assert_msg(count == expected &&
                          memcmp(ids, cases[i].ids[_i], count * sizeof ids[0]) == 0,
                      "case %zu", i);
        ck_assert_uint_eq(bpe_count_unknown(bpe, cases[i].text, length, counts), cases[i].unknown);
        ck_assert_uint_eq(counts['a'], 0);
    }
    bpe_scratch_release(&scratch);
    hostmem_free(bpe);
    fixture_close(&fixture);
}

/* Returns the same vocabulary with ranks by token: a copy of its texts. */
static struct bpe *copy_by_token(struct data_fixture *fixture, const struct bpe *from)
{
    struct bpe *bpe = NULL;
    const struct bpe_spec spec = {
        .vocab_size = from->vocab_size, .text_bytes = 1 << 20, .rank = BPE_RANK_TOKEN};
    ck_assert_int_eq(bpe_create(fixture->mem, &spec, &bpe), GT_OK);
    for (size_t id = 0; id < from->vocab_size; id++) {
        const char *bytes = NULL;
        const size_t count = bpe_token(from, (int32_t)id, &bytes);
        ck_assert_int_eq(
            bpe_add_token(bpe, (int32_t)id, bytes, count, bpe_is_special(from, (int32_t)id)),
            BPE_ADDED);
    }
    ck_assert_int_eq(bpe_finish(bpe, "copy"), GT_OK);
    ck_assert_uint_ne(bpe->hash, from->hash);
    return bpe;
}

static void compare_pieces(const struct bpe *bpe, struct bpe_scratch *scratch)
{
    char text[160];
    int32_t ids[160], expected[160];
    for (uint32_t i = 0; i < 300; i++) {
        const size_t length =
            1 +
            random_below(7, i, i % 3 == 0 ? 16 : sizeof text); /* both sides of the short limit */
        size_t count = 0;
        if (i % 4 == 0)
            memset(text, 'a' + (int)(i % 8 == 0), length);
        else
            random_text(2000 + i, i % 2 == 0, text, length);
        ck_assert_int_eq(bpe_encode_piece(bpe, scratch, text, length, ids, &count), GT_OK);
        ck_assert_msg(count == plain_encode(bpe, text, length, expected), "piece %u", i);
        ck_assert_mem_eq(ids, expected, count * sizeof ids[0]);
    }
}

TEST(bpe_encodes_as_the_definition_says)
{
    struct data_fixture fixture;
    fixture_open(&fixture);
    struct bpe_scratch scratch = {.memory = NULL};
    struct tokenizer *tokenizer = make_trained(&fixture, 400);
    struct bpe *by_token = copy_by_token(&fixture, tokenizer->bpe);
    compare_pieces(tokenizer->bpe, &scratch);
    compare_pieces(by_token, &scratch);
    bpe_scratch_release(&scratch);
    ck_assert_ptr_null(scratch.memory);
    hostmem_free(by_token);
    hostmem_free(tokenizer);
    fixture_close(&fixture);
}

/* All texts of two letters up to six long, made from all their halves in a random order, so that
 * merges compete. */
TEST(bpe_encodes_under_competition)
{
    enum { TEXTS = 124, PIECE = 150, TRIES = 8000 };
    struct data_fixture fixture;
    struct bpe_scratch scratch = {.memory = NULL};
    fixture_open(&fixture);
    for (uint32_t round = 0; round < 10; round++) {
        struct bpe *bpe = make_bytes(&fixture, TEXTS, TRIES, BPE_RANK_MERGE);
        int32_t id = 256;
        for (int length = 2; length <= 6; length++)
            for (int bits = 0; bits < 1 << length; bits++) {
                char text[8] = "";
                for (int i = 0; i < length; i++)
                    text[i] = (bits >> i & 1) != 0 ? 'b' : 'a';
                add(bpe, id++, text);
            }
        for (uint32_t i = 0; i < TRIES; i++) {
            const uint32_t left = random_below(40 + round, 2 * i, TEXTS + 2);
            const uint32_t right = random_below(40 + round, 2 * i + 1, TEXTS + 2);
            const int32_t a = bpe_find(bpe, "a", 1), b = bpe_find(bpe, "b", 1);
            (void)bpe_add_merge(bpe, left < 2 ? (left == 0 ? a : b) : (int32_t)left + 254,
                                right < 2 ? (right == 0 ? a : b) : (int32_t)right + 254);
        }
        ck_assert_int_eq(bpe_finish(bpe, "here"), GT_OK);
        for (uint32_t i = 0; i < 20; i++) {
            char text[PIECE];
            int32_t ids[PIECE], expected[PIECE];
            size_t count = 0;
            for (uint32_t k = 0; k < PIECE; k++)
                text[k] = (char)('a' + random_below(60 + i, k + round * PIECE, 2));
            ck_assert_int_eq(bpe_encode_piece(bpe, &scratch, text, PIECE, ids, &count), GT_OK);
            ck_assert_uint_eq(count, plain_encode(bpe, text, PIECE, expected));
            ck_assert_mem_eq(ids, expected, count * sizeof ids[0]);
        }
        hostmem_free(bpe);
    }
    bpe_scratch_release(&scratch);
    fixture_close(&fixture);
}
