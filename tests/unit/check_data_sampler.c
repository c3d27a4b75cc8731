/* Tests of src/data/sampler.c: purity, range, uniformity, every block once per epoch, and
 * whole-split windows. */
#include "data/sampler.h"

#include <math.h>

#include "tests/unit/data_fixture.h"

#define BLOCK 8

/* Shards of 100, 8 (too short), 9 (one start) and 61 tokens; ids count up from 0, 100, 108 and 117.
 */
static struct token_source *open_shards(struct data_fixture *fixture)
{
    struct token_source *source = NULL;
    fixture_open(fixture);
    fixture_write_u16(fixture, "train_a.bin", 100, 0);
    fixture_write_u16(fixture, "train_b.bin", 8, 100);
    fixture_write_u16(fixture, "train_c.bin", 9, 108);
    fixture_write_u16(fixture, "train_d.bin", 61, 117);
    const struct token_source_spec spec = {
        .folder = fixture->folder, .split = TOKEN_TRAIN, .block_size = BLOCK};
    ck_assert_int_eq(token_source_open(fixture->mem, &spec, &source), GT_OK);
    return source;
}

static struct sampler *make_sampler(struct data_fixture *fixture, const struct token_source *source,
                                    enum sampler_kind kind, uint64_t seed)
{
    struct sampler *sampler = NULL;
    const struct sampler_spec spec = {
        .source = source, .kind = kind, .seed = seed, .block_size = BLOCK, .samples_per_step = 5};
    ck_assert_int_eq(sampler_create(fixture->mem, &spec, &sampler), GT_OK);
    return sampler;
}

/* Returns true when a block from `position` lies inside one shard. */
static bool inside_one_shard(int64_t position)
{
    return (position >= 0 && position <= 100 - 9) || position == 108 ||
           (position >= 117 && position <= 178 - 9);
}

/* Five rows of packed conversations: every draw is the beginning of a row, and each row is drawn.
 */
TEST(sampler_draws_rows_of_conversations)
{
    static const unsigned char mask[22] = {'g', 't', 'm', 'a',   's',
                                           'k', '0', '1', BLOCK, [16] = 0xFF};
    struct data_fixture fixture;
    struct token_source *source = NULL;
    int64_t seen = 0;
    fixture_open(&fixture);
    fixture_write_u16(&fixture, "train.bin", 5 * BLOCK + 1, 0);
    fixture_write(&fixture, "train.mask", mask, sizeof mask);
    const struct token_source_spec spec = {
        .folder = fixture.folder, .split = TOKEN_TRAIN, .block_size = BLOCK};
    ck_assert_int_eq(token_source_open(fixture.mem, &spec, &source), GT_OK);
    struct sampler *sampler = make_sampler(&fixture, source, SAMPLER_RANDOM, unit_seed());
    for (int64_t i = 0; i < 200; i++) {
        const int64_t position = i % 2 == 0 ? sampler_position(sampler, i, i % 5)
                                            : sampler_position_eval(sampler, TOKEN_VAL, i, 3);
        ck_assert_int_eq(position % BLOCK, 0);
        seen |= INT64_C(1) << position / BLOCK;
    }
    ck_assert_int_eq(seen, 31);
    hostmem_free(sampler);
    hostmem_free(source);
    fixture_close(&fixture);
}

TEST(sampler_random_is_pure_and_inside)
{
    struct data_fixture fixture;
    struct token_source *source = open_shards(&fixture);
    struct sampler *a = make_sampler(&fixture, source, SAMPLER_RANDOM, unit_seed());
    struct sampler *b = make_sampler(&fixture, source, SAMPLER_RANDOM, unit_seed());
    struct sampler *c = make_sampler(&fixture, source, SAMPLER_RANDOM, unit_seed() + 1);
    int differ = 0;
    ck_assert_int_eq(sampler_start_count(a), 92 + 0 + 1 + 53);
    for (int64_t step = 400; step-- > 0;)
        for (int64_t sample = 0; sample < 5; sample++) {
            const int64_t position = sampler_position(a, step, sample);
            ck_assert_msg(inside_one_shard(position), "position %lld", (long long)position);
            ck_assert_int_eq(position, sampler_position(b, step, sample));
            differ += position != sampler_position(c, step, sample);
        }
    ck_assert_int_gt(differ, 1800);
    ck_assert(inside_one_shard(sampler_position(a, UINT32_MAX, 4)));
    hostmem_free(a);
    hostmem_free(b);
    hostmem_free(c);
    hostmem_free(source);
    fixture_close(&fixture);
}

/* Runs a chi-square test over all 146 starts; the bound is 6 standard deviations of the statistic.
 */
static void check_uniform(const struct sampler *sampler, bool eval)
{
    int64_t counts[178] = {0};
    const int64_t draws = 146 * 400;
    double chi_square = 0;
    for (int64_t i = 0; i < draws; i++)
        counts[eval ? sampler_position_eval(sampler, TOKEN_VAL, i / 5, i % 5)
                    : sampler_position(sampler, i / 5, i % 5)]++;
    for (int64_t i = 0; i < 178; i++) {
        const double expected = inside_one_shard(i) ? 400.0 : 0.0;
        if (expected > 0)
            chi_square +=
                ((double)counts[i] - expected) * ((double)counts[i] - expected) / expected;
        else
            ck_assert_int_eq(counts[i], 0);
    }
    ck_assert_msg(fabs(chi_square - 145) <= 6 * sqrt(2.0 * 145), "chi-square %g of 145",
                  chi_square);
}

TEST(sampler_draws_are_uniform)
{
    struct data_fixture fixture;
    struct token_source *source = open_shards(&fixture);
    struct sampler *sampler = make_sampler(&fixture, source, SAMPLER_RANDOM, unit_seed());
    check_uniform(sampler, false);
    check_uniform(sampler, true);
    hostmem_free(sampler);
    hostmem_free(source);
    fixture_close(&fixture);
}

TEST(sampler_eval_streams_differ)
{
    struct data_fixture fixture;
    struct token_source *source = open_shards(&fixture);
    struct sampler *random = make_sampler(&fixture, source, SAMPLER_RANDOM, unit_seed());
    struct sampler *epoch = make_sampler(&fixture, source, SAMPLER_EPOCH, unit_seed());
    int split = 0, evaluation = 0, training = 0;
    for (int64_t i = 0; i < 100; i++) {
        const int64_t position = sampler_position_eval(random, TOKEN_TRAIN, 3, i);
        ck_assert_int_eq(position, sampler_position_eval(epoch, TOKEN_TRAIN, 3, i));
        split += position != sampler_position_eval(random, TOKEN_VAL, 3, i);
        evaluation += position != sampler_position_eval(random, TOKEN_TRAIN, 4, i);
        training += position != sampler_position(random, 3, i % 5);
    }
    ck_assert(split > 90 && evaluation > 90 && training > 90);
    hostmem_free(random);
    hostmem_free(epoch);
    hostmem_free(source);
    fixture_close(&fixture);
}

TEST(sampler_epoch_reads_each_block_once)
{
    struct data_fixture fixture;
    struct token_source *source = open_shards(&fixture);
    struct sampler *sampler = make_sampler(&fixture, source, SAMPLER_EPOCH, unit_seed());
    const int64_t blocks = sampler_window_count(sampler, false);
    int64_t first_order[32];
    int same = 0;
    ck_assert_int_eq(blocks, 12 + 0 + 1 + 7);
    for (int64_t epoch = 0; epoch < 3; epoch++) {
        int seen[178] = {0};
        for (int64_t i = 0; i < blocks; i++) {
            const int64_t number = epoch * blocks + i;
            const int64_t position = sampler_position(sampler, number / 5, number % 5);
            ck_assert(inside_one_shard(position));
            ck_assert_int_eq((position < 100   ? position
                              : position < 117 ? position - 108
                                               : position - 117) %
                                 BLOCK,
                             0);
            ck_assert_int_eq(seen[position]++, 0);
            if (epoch == 0)
                first_order[i] = position;
            else
                same += first_order[i] == position;
        }
    }
    ck_assert_int_lt(same, 15);
    hostmem_free(sampler);
    hostmem_free(source);
    fixture_close(&fixture);
}

TEST(sampler_permutation_is_a_bijection)
{
    static const int64_t counts[] = {1, 2, 3, 4, 5, 7, 8, 9, 31, 64, 65, 1000, 4097, 20000};
    unsigned char *seen = malloc(20000);
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
        for (int64_t epoch = 0; epoch < 3; epoch++) {
            int64_t fixed = 0;
            memset(seen, 0, 20000);
            for (int64_t index = 0; index < counts[i]; index++) {
                const int64_t value = sampler_permute(unit_seed(), epoch, counts[i], index);
                ck_assert(value >= 0 && value < counts[i]);
                ck_assert_int_eq(seen[value]++, 0);
                fixed += value == index;
            }
            if (counts[i] >= 1000)
                ck_assert_int_lt(fixed, 12); /* the mean is one */
        }
    const int64_t huge = INT64_C(1) << 40;
    ck_assert_int_lt(sampler_permute(unit_seed(), 1, huge + 1, huge), huge + 1);
    free(seen);
}

/* With the tail, every target of every usable shard is counted exactly once. */
TEST(sampler_windows_cover_the_split)
{
    struct data_fixture fixture;
    struct token_source *source = open_shards(&fixture);
    struct sampler *sampler = make_sampler(&fixture, source, SAMPLER_RANDOM, 1);
    int covered[178] = {0};
    ck_assert_int_eq(sampler_window_count(sampler, false), 20);
    ck_assert_int_eq(sampler_window_count(sampler, true), 13 + 1 + 8);
    for (int64_t i = 0; i < 22; i++) {
        const struct sampler_window window = sampler_window_at(sampler, true, i);
        ck_assert(inside_one_shard(window.position));
        for (int64_t t = window.ignored; t < BLOCK; t++)
            covered[window.position + t + 1]++;
    }
    for (int i = 0; i < 178; i++)
        ck_assert_msg(covered[i] == !(i == 0 || (i >= 100 && i <= 108) || i == 117), "token %d: %d",
                      i, covered[i]);
    for (int64_t i = 0; i < 12; i++)
        ck_assert_int_eq(sampler_window_at(sampler, false, i).position, i * BLOCK);
    ck_assert_int_eq(sampler_window_at(sampler, false, 12).position, 108);
    ck_assert_int_eq(sampler_window_at(sampler, false, 19).position, 117 + 6 * BLOCK);
    hostmem_free(sampler);
    hostmem_free(source);
    fixture_close(&fixture);
}
