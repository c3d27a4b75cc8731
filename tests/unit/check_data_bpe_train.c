/* Tests of src/data/bpe_train.c: a comparison with a trainer that counts all pairs again for every
 * merge, parts, and the longest token. */
#include "data/bpe.h"
#include "data/bpe_split.h"
#include "data/bpe_train.h"
#include "data/tokenizer.h"
#include "tests/unit/bpe_fixture.h"

static struct tokenizer *train(struct data_fixture *fixture, const char *text, size_t count,
                               int64_t vocab_size)
{
    struct bpe_trainer *trainer = NULL;
    struct tokenizer *tokenizer = NULL;
    ck_assert_int_eq(bpe_trainer_create(fixture->mem, NULL, &trainer), GT_OK);
    ck_assert_int_eq(bpe_trainer_add(trainer, text, count), GT_OK);
    ck_assert_int_eq(bpe_trainer_finish(trainer, fixture->mem, vocab_size, &tokenizer), GT_OK);
    hostmem_free(trainer);
    return tokenizer;
}

/* ---- a trainer that counts all pairs for every merge ---- */

enum { PLAIN_MAX = 3000, PLAIN_IDS_MAX = 600 };

struct plain {
    int32_t symbols[PLAIN_MAX]; /* those of all pieces, in order; -1 between two */
    size_t count;
    int64_t counts[PLAIN_IDS_MAX][PLAIN_IDS_MAX];
};

static void plain_begin(struct plain *plain, struct bpe_splitter *splitter, const char *text,
                        size_t count)
{
    const char *piece = NULL;
    plain->count = 0;
    bpe_splitter_begin(splitter, text, count);
    for (size_t length; (length = bpe_splitter_next(splitter, &piece)) > 0;) {
        for (size_t i = 0; i < length; i++)
            for (int rank = 0; rank < 256; rank++)
                if (bpe_alphabet_byte(rank) == (unsigned char)piece[i])
                    plain->symbols[plain->count++] = rank;
        plain->symbols[plain->count++] = -1;
    }
    ck_assert_uint_le(plain->count, PLAIN_MAX);
}

static bool plain_best(struct plain *plain, int32_t ids, int32_t *left, int32_t *right)
{
    int64_t best = 0;
    memset(plain->counts, 0, sizeof plain->counts);
    for (size_t i = 0; i + 1 < plain->count; i++)
        if (plain->symbols[i] >= 0 && plain->symbols[i + 1] >= 0)
            plain->counts[plain->symbols[i]][plain->symbols[i + 1]]++;
    for (int32_t a = 0; a < ids; a++)
        for (int32_t b = 0; b < ids; b++)
            if (plain->counts[a][b] > best) {
                best = plain->counts[a][b];
                *left = a;
                *right = b;
            }
    return best > 0;
}

static void plain_merge(struct plain *plain, int32_t left, int32_t right, int32_t result)
{
    size_t kept = 0;
    for (size_t at = 0; at < plain->count; kept++) {
        const bool here =
            at + 1 < plain->count && plain->symbols[at] == left && plain->symbols[at + 1] == right;
        plain->symbols[kept] = here ? result : plain->symbols[at];
        at += here ? 2 : 1;
    }
    plain->count = kept;
}

TEST(train_agrees_with_counting_anew)
{
    struct data_fixture fixture;
    struct bpe_splitter *splitter = NULL;
    struct plain *plain = malloc(sizeof *plain);
    char text[PLAIN_MAX / 2];
    fixture_open(&fixture);
    ck_assert_ptr_nonnull(plain);
    ck_assert_int_eq(bpe_splitter_create(fixture.mem, BPE_SPLIT_GPT2, &splitter), GT_OK);
    for (uint32_t i = 0; i < 6; i++) { /* the last two of 0 bytes and 1 */
        const size_t size = i < 4 ? sizeof text : i - 4;
        random_text(300 + i, i % 2 == 1, text, size);
        struct tokenizer *tokenizer = train(&fixture, text, size, 400);
        const size_t count = tokenizer->bpe->merge_count;
        const struct bpe_merge *merges = tokenizer->bpe->merges;
        ck_assert(count > 40 || size < sizeof text);
        plain_begin(plain, splitter, text, size);
        int32_t ids = 256;
        for (size_t k = 0; k < count; k++) {
            int32_t left = -1, right = -1;
            ck_assert(plain_best(plain, ids, &left, &right));
            ck_assert_msg(left == merges[k].left && right == merges[k].right, "text %u, merge %zu",
                          i, k);
            plain_merge(plain, left, right, merges[k].result);
            ids = merges[k].result >= ids ? merges[k].result + 1 : ids;
        }
        if (tokenizer->vocab_size < 400) {
            int32_t left, right;
            ck_assert(!plain_best(plain, ids, &left, &right));
        }
        hostmem_free(tokenizer);
    }
    free(plain);
    hostmem_free(splitter);
    fixture_close(&fixture);
}

/* Parts cut at bpe_split_cut() give the same counts as the whole. */
TEST(train_in_parts)
{
    struct data_fixture fixture;
    char text[8000];
    struct bpe_trainer *trainer = NULL;
    struct tokenizer *parts = NULL;
    fixture_open(&fixture);
    random_text(77, true, text, sizeof text);
    struct tokenizer *whole = train(&fixture, text, sizeof text, 350);
    ck_assert_int_eq(bpe_trainer_create(fixture.mem, NULL, &trainer), GT_OK);
    for (size_t at = 0; at < sizeof text;) {
        bool forced = false;
        const size_t left = sizeof text - at,
                     cut = left > 500 ? bpe_split_cut(text + at, 500, false, &forced) : left;
        ck_assert(!forced);
        ck_assert_int_eq(bpe_trainer_add(trainer, text + at, cut), GT_OK);
        at += cut;
    }
    ck_assert_int_eq(bpe_trainer_finish(trainer, fixture.mem, 350, &parts), GT_OK);
    ck_assert_uint_eq(parts->hash, whole->hash);
    hostmem_free(parts);
    hostmem_free(whole);
    hostmem_free(trainer);
    fixture_close(&fixture);
}

/* No token is longer than BPE_TOKEN_BYTES_MAX. */
TEST(train_bounds_tokens)
{
    struct data_fixture fixture;
    const size_t count = 40000;
    char *text = malloc(count);
    fixture_open(&fixture);
    ck_assert_ptr_nonnull(text);
    memset(text, '=', count);
    struct tokenizer *tokenizer = train(&fixture, text, count, 400);
    size_t longest = 0;
    for (int32_t id = 0; id < tokenizer->vocab_size; id++) {
        const char *bytes = NULL;
        const size_t length = bpe_token(tokenizer->bpe, id, &bytes);
        longest = length > longest ? length : longest;
    }
    ck_assert_uint_eq(longest, BPE_TOKEN_BYTES_MAX);
    free(text);
    hostmem_free(tokenizer);
    fixture_close(&fixture);
}
