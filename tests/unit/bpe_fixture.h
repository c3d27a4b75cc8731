/* Shared by the tests of byte-pair encoding: random texts, a small trained vocabulary, and the
 * plainest encoder. */
#ifndef GPT_TRAIN_UNIT_BPE_FIXTURE_H
#define GPT_TRAIN_UNIT_BPE_FIXTURE_H

#include "base/rng.h"
#include "data/bpe.h"
#include "data/bpe_train.h"
#include "data/tokenizer.h"
#include "tests/unit/data_fixture.h"

static inline uint32_t random_below(uint32_t stream, uint32_t index, uint32_t bound)
{
    const struct philox_block block = philox4x32_10(philox_key_make(unit_seed(), RNG_SAMPLE),
                                                    (struct philox_block){{index, stream}});
    return block.word[0] % bound;
}

/* Writes `count` bytes of words, numbers, signs and runs of white space; with `wild`, also
 * characters beyond ASCII and bytes that are not UTF-8.  Words repeat, so that there is something
 * to merge. */
static inline void random_text(uint32_t stream, bool wild, char *out, size_t count)
{
    static const char *const parts[] = {
        "the", " the", " them", "theme", " other", " mother", "'s", "'ll",          " 12", "345",
        "6",   ".",    ", ",    "!!",    "\n",     "\n\n",    "  ", "\t \n",        " ",   "=====",
        "'",   "''re", " \"",   "aaaa",  " abab",  "abab",    "x",  "<|endoftext|>"};
    static const char *const wild_parts[] = {
        "\xC3\xA9",         " \xC3\xBC", "\xE6\x97\xA5", "\xC2\xA0", "\xE3\x80\x80",
        "\xF0\x9F\x98\x80", "\xFF",      "\xE2\x80",     "\x80\x99", "\xD9\xA3"};
    const uint32_t plain = sizeof parts / sizeof parts[0],
                   all = plain + sizeof wild_parts / sizeof wild_parts[0];
    size_t at = 0;
    for (uint32_t i = 0; at < count; i++) {
        const uint32_t which = random_below(stream, i, wild ? all : plain);
        const char *part = which < plain ? parts[which] : wild_parts[which - plain];
        for (size_t k = 0; part[k] != '\0' && at < count; k++)
            out[at++] = part[k];
    }
}

/* Returns a vocabulary of up to `vocab_size` tokens, trained on 20,000 random bytes. */
static inline struct tokenizer *make_trained(struct data_fixture *fixture, int64_t vocab_size)
{
    static char text[20000];
    struct bpe_trainer *trainer = NULL;
    struct tokenizer *tokenizer = NULL;
    random_text(1000, true, text, sizeof text);
    ck_assert_int_eq(bpe_trainer_create(fixture->mem, NULL, &trainer), GT_OK);
    ck_assert_int_eq(bpe_trainer_add(trainer, text, sizeof text), GT_OK);
    ck_assert_int_eq(bpe_trainer_finish(trainer, fixture->mem, vocab_size, &tokenizer), GT_OK);
    hostmem_free(trainer);
    return tokenizer;
}

/* Returns the id of a text of one token, by comparing with all tokens, or -1. */
static inline int32_t plain_find(const struct bpe *bpe, const char *bytes, size_t count)
{
    const char *token = NULL;
    for (size_t id = 0; id < bpe->vocab_size; id++)
        if (!bpe_is_special(bpe, (int32_t)id) && bpe_token(bpe, (int32_t)id, &token) == count &&
            memcmp(token, bytes, count) == 0)
            return (int32_t)id;
    return -1;
}

/* Returns the rank of a pair straight from the definition, or -1; *result is the merged token. */
static inline int64_t plain_rank(const struct bpe *bpe, int32_t left, int32_t right,
                                 int32_t *result)
{
    const struct bpe_merge *merges = bpe->merges;
    if (bpe->rank == BPE_RANK_MERGE) {
        for (size_t i = bpe->merge_count; i-- > 0;)
            if (merges[i].left == left && merges[i].right == right) {
                *result = merges[i].result;
                return (int64_t)i;
            }
        return -1;
    }
    char joined[2 * BPE_TOKEN_BYTES_MAX];
    const char *bytes = NULL;
    const size_t left_count = bpe_token(bpe, left, &bytes);
    memcpy(joined, bytes, left_count);
    const size_t right_count = bpe_token(bpe, right, &bytes);
    memcpy(joined + left_count, bytes, right_count);
    *result = plain_find(bpe, joined, left_count + right_count);
    return *result;
}

/* Encodes one piece; examines every pair before every merge. */
static inline size_t plain_encode(const struct bpe *bpe, const char *bytes, size_t count,
                                  int32_t *out)
{
    for (size_t i = 0; i < count; i++)
        out[i] = plain_find(bpe, bytes + i, 1);
    for (;;) {
        int64_t best = -1;
        int32_t best_result = -1;
        size_t best_at = 0;
        for (size_t i = 0; i + 1 < count; i++) {
            int32_t result = -1;
            const int64_t rank = plain_rank(bpe, out[i], out[i + 1], &result);
            if (rank >= 0 && (best < 0 || rank < best)) {
                best = rank;
                best_at = i;
                best_result = result;
            }
        }
        if (best < 0)
            return count;
        out[best_at] = best_result;
        memmove(out + best_at + 1, out + best_at + 2, (count - best_at - 2) * sizeof out[0]);
        count--;
    }
}

#endif
