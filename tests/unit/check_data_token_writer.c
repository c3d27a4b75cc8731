/* Tests of src/data/token_writer.c: both formats, shards, the split by position at every place, continuing, and reading
 * the result as training does. */
#include "data/token_writer.h"

#include "base/crc32c.h"
#include "base/file.h"
#include "tests/unit/data_fixture.h"

enum { TOKENS = 23 };

/* Returns token number i. */
static int32_t token_at(int64_t i, size_t width)
{
    return (int32_t)(width == 4 ? i * 70001 % 100000 : i * 7001 % 65536);
}

static void put(struct token_writer *writer, enum token_split split, size_t width, int64_t first, int64_t count)
{
    unsigned char bytes[4 * TOKENS];
    for (int64_t i = 0; i < count; i++)
        for (size_t k = 0; k < width; k++)
            bytes[(size_t)i * width + k] = (unsigned char)((uint32_t)token_at(first + i, width) >> 8 * k & 0xFF);
    ck_assert_int_eq(token_writer_put(writer, split, bytes, count), GT_OK);
}

/* Expects that training reads the tokens first .. first + count - 1 of a split, and that sizes and checksums are
 * right. */
static void expect_split(struct data_fixture *fixture, const struct token_writer_spec *spec, enum token_split split,
                         int64_t first, int64_t count)
{
    struct token_source *source = NULL;
    int32_t ids[TOKENS];
    const struct token_source_spec source_spec = {.folder = spec->folder, .split = split};
    ck_assert_int_eq(token_source_open(fixture->mem, &source_spec, &source), GT_OK);
    ck_assert_int_eq(source->length, count);
    ck_assert_int_eq(token_source_read(source, 0, count, ids), GT_OK);
    for (int64_t i = 0; i < count; i++)
        ck_assert_int_eq(ids[i], token_at(first + i, spec->width_bytes));
    hostmem_free(source);
}

static void settle_all(struct data_fixture *fixture, const struct token_writer_spec *spec,
                       const struct token_file *files, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        char path[64];
        size_t size = 0;
        ck_assert_int_eq(token_file_settle(spec, &files[i]), GT_OK);
        ck_assert_int_eq(token_file_settle(spec, &files[i]), GT_OK); /* as after a kill */
        snprintf(path, sizeof path, "out/%s", files[i].name);
        char *bytes = fixture_read(fixture, path, &size);
        ck_assert_uint_eq(size, files[i].size_bytes);
        ck_assert_uint_eq(file_crc32c(0, bytes, size), files[i].crc32c);
        ck_assert(token_writer_is_name(files[i].name) && token_writer_is_name(files[i].partial));
        free(bytes);
    }
}

/* Makes an empty folder out/. */
static void folder_make(struct data_fixture *fixture, char out[static 512])
{
    char command[600];
    strcpy(out, fixture_path(fixture, "out"));
    snprintf(command, sizeof command, "rm -rf '%s'", out);
    ck_assert_int_eq(system(command), 0);
    ck_assert_int_eq(file_make_folders(out), GT_OK);
}

static void check_position(struct data_fixture *fixture, size_t width, int64_t shard_tokens, int64_t train)
{
    char folder[512];
    struct token_writer *writer = NULL;
    const struct token_file *files = NULL;
    size_t count = 0;
    folder_make(fixture, folder);
    const struct token_writer_spec spec = {.folder = folder, .width_bytes = width, .shard_tokens = shard_tokens};
    ck_assert_int_eq(token_writer_create(fixture->mem, &spec, &writer), GT_OK);
    put(writer, TOKEN_TRAIN, width, 0, 9);
    put(writer, TOKEN_TRAIN, width, 9, TOKENS - 9);
    ck_assert_int_eq(token_writer_finish(writer, train, &files, &count), GT_OK);
    settle_all(fixture, &spec, files, count);
    expect_split(fixture, &spec, TOKEN_TRAIN, 0, train);
    expect_split(fixture, &spec, TOKEN_VAL, train, TOKENS - train);
    hostmem_free(writer);
}

TEST_LIMIT(60)

TEST(token_writer_position_anywhere)
{
    struct data_fixture fixture;
    fixture_open(&fixture);
    for (size_t width = 2; width <= 4; width += 2)
        for (int64_t train = 1; train < TOKENS; train++) {
            check_position(&fixture, width, 0, train);
            check_position(&fixture, width, 5, train);
            check_position(&fixture, width, TOKENS, train);
        }
    fixture_close(&fixture);
}

TEST(token_writer_two_splits)
{
    struct data_fixture fixture;
    char folder[512];
    struct token_writer *writer = NULL;
    const struct token_file *files = NULL;
    size_t count = 0;
    fixture_open(&fixture);
    for (int64_t shard_tokens = 0; shard_tokens <= 8; shard_tokens += 4) {
        folder_make(&fixture, folder);
        const struct token_writer_spec spec = {.folder = folder, .width_bytes = 2, .shard_tokens = shard_tokens};
        ck_assert_int_eq(token_writer_create(fixture.mem, &spec, &writer), GT_OK);
        for (int64_t i = 0; i < TOKENS; i++)
            put(writer, i < 8 ? TOKEN_VAL : TOKEN_TRAIN, 2, i, 1);
        ck_assert_int_eq(token_writer_finish(writer, -1, &files, &count), GT_OK);
        ck_assert_uint_eq(count, shard_tokens == 0 ? 2 : shard_tokens == 4 ? 6 : 3);
        settle_all(&fixture, &spec, files, count);
        expect_split(&fixture, &spec, TOKEN_VAL, 0, 8);
        expect_split(&fixture, &spec, TOKEN_TRAIN, 8, TOKENS - 8);
        hostmem_free(writer);
    }
    fixture_close(&fixture);
}

/* Writes up to `at`, writes a little more, and continues from there. */
static void check_resume(struct data_fixture *fixture, size_t width, int64_t shard_tokens, int64_t at)
{
    char folder[512];
    struct token_writer *writer = NULL;
    const struct token_file *files = NULL;
    size_t count = 0;
    folder_make(fixture, folder);
    const struct token_writer_spec spec = {.folder = folder, .width_bytes = width, .shard_tokens = shard_tokens};
    ck_assert_int_eq(token_writer_create(fixture->mem, &spec, &writer), GT_OK);
    put(writer, TOKEN_TRAIN, width, 0, at);
    ck_assert_int_eq(token_writer_sync(writer), GT_OK);
    put(writer, TOKEN_TRAIN, width, 1, TOKENS - at); /* wrong tokens for this place */
    ck_assert_int_eq(token_writer_sync(writer), GT_OK);
    hostmem_free(writer);
    ck_assert_int_eq(token_writer_create(fixture->mem, &spec, &writer), GT_OK);
    ck_assert_int_eq(token_writer_resume(writer, TOKEN_TRAIN, at), GT_OK);
    ck_assert_int_eq(token_writer_tokens(writer, TOKEN_TRAIN), at);
    put(writer, TOKEN_TRAIN, width, at, TOKENS - at);
    ck_assert_int_eq(token_writer_finish(writer, TOKENS - 3, &files, &count), GT_OK);
    settle_all(fixture, &spec, files, count);
    expect_split(fixture, &spec, TOKEN_TRAIN, 0, TOKENS - 3);
    expect_split(fixture, &spec, TOKEN_VAL, TOKENS - 3, 3);
    hostmem_free(writer);
}

TEST(token_writer_resume_anywhere)
{
    struct data_fixture fixture;
    fixture_open(&fixture);
    for (int64_t at = 0; at <= TOKENS; at++) {
        check_resume(&fixture, 2, 0, at);
        check_resume(&fixture, 4, 0, at);
        check_resume(&fixture, 2, 4, at);
    }
    fixture_close(&fixture);
}

TEST(token_writer_border_by_weight)
{
    struct data_fixture fixture;
    char folder[512];
    const int32_t weights[] = {0, 1, 2, 3};
    static const unsigned char tokens[] = {1, 0, 2, 0, 0, 0, 3, 0, 1, 0, 0, 0, 2, 0, 2, 0}; /* 1 2 0 3 1 0 2 2 */
    static const int64_t borders[] = {8, 8, 7, 7, 6, 4, 4, 4, 3, 2, 1, 0, 0};
    fixture_open(&fixture);
    for (int64_t shard_tokens = 0; shard_tokens < 9; shard_tokens++)
        for (int64_t val = 0; val < 13; val++) {
            struct token_writer *writer = NULL;
            int64_t train = -1;
            folder_make(&fixture, folder);
            const struct token_writer_spec spec = {.folder = folder, .width_bytes = 2, .shard_tokens = shard_tokens};
            ck_assert_int_eq(token_writer_create(fixture.mem, &spec, &writer), GT_OK);
            ck_assert_int_eq(token_writer_put(writer, TOKEN_TRAIN, tokens, 8), GT_OK);
            ck_assert_int_eq(token_writer_border(writer, weights, 4, val, &train), GT_OK);
            ck_assert_msg(train == borders[val], "val %d: %d", (int)val, (int)train);
            hostmem_free(writer);
        }
    fixture_close(&fixture);
}

TEST(token_writer_refusals)
{
    struct data_fixture fixture;
    char folder[512];
    struct token_writer *writer = NULL;
    const struct token_file *files = NULL;
    size_t count = 0;
    fixture_open(&fixture);
    folder_make(&fixture, folder);
    const struct token_writer_spec spec = {.folder = folder, .width_bytes = 2};
    ck_assert_int_eq(token_writer_create(fixture.mem, &spec, &writer), GT_OK);
    ck_assert_int_eq(token_writer_resume(writer, TOKEN_TRAIN, 4), GT_IO);
    FIXTURE_SAYS(&fixture, "train.bin.partial");
    hostmem_free(writer);
    fixture_write(&fixture, "out/train.bin.partial", "abcdef", 6);
    ck_assert_int_eq(token_writer_create(fixture.mem, &spec, &writer), GT_OK);
    ck_assert_int_eq(token_writer_resume(writer, TOKEN_TRAIN, 4), GT_DATA);
    FIXTURE_SAYS(&fixture, "has 6 bytes; the stopped run had written 8");
    hostmem_free(writer);
    /* Two tokens whose bytes are llm.c's magic number. */
    ck_assert_int_eq(token_writer_create(fixture.mem, &spec, &writer), GT_OK);
    ck_assert_int_eq(token_writer_put(writer, TOKEN_TRAIN, (const unsigned char *)"\x88\xD8\x34\x01zz", 3), GT_OK);
    ck_assert_int_eq(token_writer_finish(writer, 2, &files, &count), GT_DATA);
    FIXTURE_SAYS(&fixture, "look like the header of an llm.c file (20240520)");
    hostmem_free(writer);
    ck_assert_int_eq(chmod(folder, 0500), 0);
    if (geteuid() != 0) {
        ck_assert_int_eq(token_writer_create(fixture.mem, &spec, &writer), GT_OK);
        ck_assert_int_eq(token_writer_put(writer, TOKEN_VAL, (const unsigned char *)"zz", 1), GT_IO);
        hostmem_free(writer);
    }
    ck_assert_int_eq(chmod(folder, 0700), 0);
    fixture_close(&fixture);
}

TEST(token_writer_names)
{
    static const char *const ours[] = {"train.bin", "val.bin.partial", "train_000001.bin", "val_999999.bin.partial"};
    static const char *const others[] = {"train",
                                         "train.bin.tmp",
                                         "train_1.bin",
                                         "train_0000001.bin",
                                         "xtrain.bin",
                                         "train_00000x.bin",
                                         "train.bin.partial.partial",
                                         "",
                                         "val_.bin"};
    for (size_t i = 0; i < sizeof ours / sizeof ours[0]; i++)
        ck_assert_msg(token_writer_is_name(ours[i]), "%s", ours[i]);
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        ck_assert_msg(!token_writer_is_name(others[i]), "%s", others[i]);
}
