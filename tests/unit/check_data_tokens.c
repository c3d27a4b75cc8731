/* Tests of src/data/tokens.c: both formats, many shards, large offsets, and every kind of bad file.
 */
#include "data/tokens.h"

#include <fcntl.h>
#include <unistd.h>

#include "tests/unit/data_fixture.h"

static enum gt_status open_folder(struct data_fixture *fixture, int64_t vocab, int64_t block,
                                  struct token_source **out)
{
    const struct token_source_spec spec = {
        .folder = fixture->folder, .split = TOKEN_TRAIN, .vocab_size = vocab, .block_size = block};
    return token_source_open(fixture->mem, &spec, out);
}

/* Opens the folder; expects GT_DATA and one line with both texts. */
static void expect_refused(struct data_fixture *fixture, int64_t block, const char *first,
                           const char *second)
{
    struct token_source *source = NULL;
    const size_t lines = log_count(LOG_ERROR);
    ck_assert_int_eq(open_folder(fixture, 0, block, &source), GT_DATA);
    ck_assert_ptr_null(source);
    ck_assert_uint_eq(log_count(LOG_ERROR), lines + 1);
    FIXTURE_SAYS(fixture, first);
    FIXTURE_SAYS(fixture, second);
}

TEST(tokens_nanogpt_file_reads)
{
    struct data_fixture fixture;
    struct token_source *source = NULL;
    const size_t count = 100001; /* several staging buffers */
    int32_t *ids = malloc(count * sizeof ids[0]);
    fixture_open(&fixture);
    fixture_write_u16(&fixture, "train.bin", count, 0);
    fixture_write_u16(&fixture, "train_000.bin", 5, 0); /* train.bin is used alone */
    fixture_write_u16(&fixture, "val.bin", 9, 40);
    ck_assert_int_eq(open_folder(&fixture, 65536, 64, &source), GT_OK);
    ck_assert_int_eq(source->length, (int64_t)count);
    hostmem_phase_set(fixture.mem, HOSTMEM_RUN);
    ck_assert_int_eq(token_source_read(source, 0, (int64_t)count, ids), GT_OK);
    hostmem_phase_set(fixture.mem, HOSTMEM_INIT);
    for (size_t i = 0; i < count; i++)
        ck_assert_int_eq(ids[i], (int32_t)(i & 0xFFFF));
    ck_assert_int_eq(token_source_read(source, (int64_t)count, 0, ids), GT_OK);
    ck_assert_int_eq(token_source_read(source, (int64_t)count - 1, 1, ids), GT_OK);
    ck_assert_int_eq(ids[0], (int32_t)((count - 1) & 0xFFFF));
    hostmem_free(source);
    const struct token_source_spec val = {.folder = fixture.folder, .split = TOKEN_VAL};
    ck_assert_int_eq(token_source_open(fixture.mem, &val, &source), GT_OK);
    ck_assert_int_eq(source->length, 9);
    hostmem_free(source);
    fixture_close(&fixture);
    free(ids);
}

TEST(tokens_many_shards_are_one_sequence)
{
    struct data_fixture fixture;
    struct token_source *source = NULL;
    int32_t ids[6000];
    size_t total = 0;
    fixture_open(&fixture);
    for (unsigned i = 0; i < 300; i++) { /* more than the limit of open files */
        const size_t count = 1 + i % 20;
        char name[64];
        snprintf(name, sizeof name, "web_train_%06u.bin", i);
        const uint32_t narrow[3] = {20240520, 1, (uint32_t)count},
                       wide[3] = {20240801, 7, (uint32_t)count};
        fixture_write_shard(&fixture, name, i % 2 ? wide : narrow, i % 2 ? 4 : 2, count,
                            (uint32_t)total);
        total += count;
    }
    fixture_write_u16(&fixture, "web_val_000000.bin", 77, 0);
    fixture_write_text(&fixture, "web_training.bin", "x"); /* not part of the split */
    ck_assert_int_eq(open_folder(&fixture, 6000, 0, &source), GT_OK);
    ck_assert_uint_eq(source->shard_count, 300);
    ck_assert_int_eq(source->length, (int64_t)total);
    for (int pass = 0; pass < 2; pass++) {
        ck_assert_int_eq(token_source_read(source, 0, (int64_t)total, ids), GT_OK);
        for (size_t i = 0; i < total; i++)
            ck_assert_int_eq(ids[i], (int32_t)i);
    }
    for (size_t i = 0; i < 300; i++) {
        const int64_t first = source->shards[i].first;
        ck_assert_int_eq(token_source_read(source, first, source->shards[i].length, ids), GT_OK);
        ck_assert_int_eq(ids[0], (int32_t)first);
    }
    hostmem_free(source);
    fixture_close(&fixture);
}

TEST(tokens_the_largest_id)
{
    struct data_fixture fixture;
    struct token_source *source = NULL;
    int32_t largest = -1;
    bool exists = true;
    fixture_open(&fixture);
    ck_assert_int_eq(token_split_exists("absent-folder", TOKEN_TRAIN, &exists), GT_OK);
    ck_assert(!exists);
    fixture_write_u16(&fixture, "x_train_1.bin", 3000, 7);
    fixture_write_u16(&fixture, "x_train_2.bin", 5, 3003);
    ck_assert_int_eq(token_split_exists(fixture.folder, TOKEN_TRAIN, &exists), GT_OK);
    ck_assert(exists);
    ck_assert_int_eq(token_split_exists(fixture.folder, TOKEN_VAL, &exists), GT_OK);
    ck_assert(!exists);
    ck_assert_int_eq(open_folder(&fixture, 0, 1, &source), GT_OK);
    ck_assert_int_eq(token_source_largest(source, &largest), GT_OK);
    ck_assert_int_eq(largest, 3007);
    hostmem_free(source);
    fixture_close(&fixture);
}

TEST(tokens_bad_files_are_refused)
{
    struct data_fixture fixture;
    fixture_open(&fixture);
    expect_refused(&fixture, 8, fixture.folder, "no train tokens");
    fixture_write(&fixture, "train.bin", "", 0);
    expect_refused(&fixture, 8, "train.bin", "empty");
    fixture_write_text(&fixture, "train.bin", "abc");
    expect_refused(&fixture, 0, "train.bin", "3 bytes");
    fixture_write_u16(&fixture, "train.bin", 8, 0);
    expect_refused(&fixture, 8, "8 tokens",
                   "block_size + 1 = 9; --block_size=7 is the largest that fits");
    const uint32_t long_count[3] = {20240520, 1, 11}, short_count[3] = {20240520, 1, 9},
                   zero[3] = {20240520, 1, 0};
    fixture_write_shard(&fixture, "train.bin", long_count, 2, 10, 0);
    expect_refused(&fixture, 8, "header[2]", "1046 bytes; it has 1044");
    fixture_write_shard(&fixture, "train.bin", short_count, 2, 10, 0);
    expect_refused(&fixture, 8, "header[2]", "1042 bytes; it has 1044");
    fixture_write_shard(&fixture, "train.bin", zero, 2, 0, 0);
    expect_refused(&fixture, 0, "header[2]", "is 0");
    const uint32_t version[3] = {20240520, 7, 10}, negative[3] = {20240801, 7, 0xFFFFFFFFu},
                   model[3] = {20240326, 3, 9};
    fixture_write_shard(&fixture, "train.bin", version, 2, 10, 0);
    expect_refused(&fixture, 8, "header[1]", "version 1");
    fixture_write_shard(&fixture, "train.bin", negative, 4, 10, 0);
    expect_refused(&fixture, 8, "header[2]", "is -1");
    fixture_write_shard(&fixture, "train.bin", model, 2, 10, 0);
    expect_refused(&fixture, 8, "20240326", "model file");
    const unsigned char magic_only[4] = {0x88, 0xD8, 0x34, 0x01};
    fixture_write(&fixture, "train.bin", magic_only, 4);
    expect_refused(&fixture, 1, "header of 1024 bytes", "has 4");
    fixture_close(&fixture);
}

TEST(tokens_ids_outside_the_vocabulary_are_named)
{
    struct data_fixture fixture;
    struct token_source *source = NULL;
    int32_t ids[100];
    const uint32_t header[3] = {20240801, 7, 3};
    fixture_open(&fixture);
    fixture_write_u16(&fixture, "train_a.bin", 50, 0);
    fixture_write_u16(&fixture, "train_b.bin", 50, 10);
    ck_assert_int_eq(open_folder(&fixture, 59, 4, &source), GT_OK);
    ck_assert_int_eq(token_source_read(source, 0, 99, ids), GT_OK);
    ck_assert_int_eq(token_source_read(source, 0, 100, ids), GT_DATA);
    FIXTURE_SAYS(&fixture, "train_b.bin: token 49 is id 59, outside the vocabulary of 59");
    hostmem_free(source);
    fixture_write_shard(&fixture, "train.bin", header, 4, 3,
                        0x7FFFFFFEu); /* above int32, too large for a vocabulary */
    ck_assert_int_eq(open_folder(&fixture, 0, 0, &source), GT_OK);
    ck_assert_int_eq(token_source_read(source, 0, 2, ids), GT_OK);
    ck_assert_int_eq(token_source_read(source, 0, 3, ids), GT_DATA);
    FIXTURE_SAYS(&fixture, "token 2 is id 2147483648");
    hostmem_free(source);
    fixture_close(&fixture);
}

static uint32_t digest_of(struct data_fixture *fixture)
{
    struct token_source *source = NULL;
    uint32_t digest = 0;
    ck_assert_int_eq(open_folder(fixture, 0, 0, &source), GT_OK);
    ck_assert_int_eq(token_source_digest(source, &digest), GT_OK);
    hostmem_free(source);
    return digest;
}

/* The same ids in one file, in several, and in another format have the same digest; other ids have
 * another. */
TEST(tokens_digest_tells_contents)
{
    struct data_fixture fixture;
    fixture_open(&fixture);
    fixture_write_u16(&fixture, "train.bin", 50000, 0);
    const uint32_t one = digest_of(&fixture);
    fixture_write_u16(&fixture, "train.bin", 50000, 1);
    ck_assert_uint_ne(digest_of(&fixture), one);
    ck_assert_int_eq(unlink(fixture_path(&fixture, "train.bin")), 0);
    const uint32_t wide[3] = {20240801, 7, 20000};
    fixture_write_u16(&fixture, "train_a.bin", 30000, 0);
    fixture_write_shard(&fixture, "train_b.bin", wide, 4, 20000, 30000);
    ck_assert_uint_eq(digest_of(&fixture), one);
    ck_assert_int_eq(unlink(fixture_path(&fixture, "train_b.bin")), 0);
    fixture_write_u16(&fixture, "train_a.bin", 3, 0); /* less than a piece */
    ck_assert_uint_ne(digest_of(&fixture), one);
    fixture_close(&fixture);
}
