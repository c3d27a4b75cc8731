/* Tests of src/data/input.c with compressed files and archives: texts and members, levels, names
 * that leave the archive, and archives that were cut short or damaged at every place.  Without
 * libarchive it tests the one line that reports so. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "data/input.h"

#include "base/crc32c.h"
#include "base/file.h"
#include "tests/unit/data_fixture.h"

TEST_LIMIT(60)

TEST(archive_names)
{
    static const struct {
        const char *name;
        size_t stem; /* 0: not packed */
    } names[] = {{"a.gz", 1},  {"a.txt.xz", 5},    {"a.tar.zst", 5}, {"a.tgz", 1},
                 {"a.tar", 1}, {"a.jsonl.bz2", 7}, {"a.txt", 0},     {".gz", 0},
                 {"gz", 0},    {"a.gz.txt", 0}};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        ck_assert_int_eq(input_name_is_packed(names[i].name), names[i].stem > 0);
        if (names[i].stem > 0)
            ck_assert_uint_eq(input_name_stem(names[i].name), names[i].stem);
    }
}

#ifndef HAVE_LIBARCHIVE

TEST(archive_refused_without_libarchive)
{
    struct data_fixture fixture;
    struct input *input = NULL;
    fixture_open(&fixture);
    fixture_write_text(&fixture, "a.gz", "x");
    const struct corpus_file file = {.path = fixture_path(&fixture, "a.gz")};
    ck_assert_int_eq(input_open(fixture.mem, &file, NULL, 0, false, &input), GT_UNSUPPORTED);
    FIXTURE_SAYS(&fixture, "a.gz: this gpt-prepare was built without libarchive");
    fixture_close(&fixture);
}

#else

#include <archive.h>
#include <archive_entry.h>

enum { ARCHIVE_BYTES_MAX = 65536, TEXT_MAX = 16384, BLOCK_BYTES = 512 };

struct member {
    const char *name;
    const void *bytes;
    size_t count;
    unsigned type;
};

/* Makes an archive of the members with the given format and compression; returns its size. */
static size_t archive_make(unsigned char out[static ARCHIVE_BYTES_MAX],
                           int (*set_format)(struct archive *archive),
                           int (*add_filter)(struct archive *archive), const struct member *members,
                           size_t count)
{
    size_t size = 0;
    struct archive *archive = archive_write_new();
    ck_assert_int_eq(set_format(archive), ARCHIVE_OK);
    ck_assert_int_eq(add_filter(archive), ARCHIVE_OK);
    ck_assert_int_eq(archive_write_set_bytes_in_last_block(archive, 1), ARCHIVE_OK);
    ck_assert_int_eq(archive_write_open_memory(archive, out, ARCHIVE_BYTES_MAX, &size), ARCHIVE_OK);
    for (size_t i = 0; i < count; i++) {
        struct archive_entry *entry = archive_entry_new();
        archive_entry_set_pathname(entry, members[i].name);
        archive_entry_set_filetype(entry, members[i].type);
        archive_entry_set_size(entry,
                               members[i].type == AE_IFREG ? (la_int64_t)members[i].count : 0);
        if (members[i].type == AE_IFLNK)
            archive_entry_set_symlink(entry, "/etc/passwd");
        archive_entry_set_perm(entry, 0644);
        ck_assert_int_ge(archive_write_header(archive, entry),
                         ARCHIVE_WARN); /* warns about names that are not ASCII */
        if (members[i].type == AE_IFREG)
            ck_assert_int_eq(archive_write_data(archive, members[i].bytes, members[i].count),
                             (la_ssize_t)members[i].count);
        archive_entry_free(entry);
    }
    ck_assert_int_eq(archive_write_close(archive), ARCHIVE_OK);
    archive_write_free(archive);
    return size;
}

static size_t tar_make(unsigned char out[static ARCHIVE_BYTES_MAX],
                       int (*add_filter)(struct archive *archive), const struct member *members,
                       size_t count)
{
    return archive_make(out, archive_write_set_format_ustar, add_filter, members, count);
}

/* Reads a whole file into "NAME=TEXT|" for each text. */
static enum gt_status read_all(struct data_fixture *fixture, const char *name,
                               char out[static TEXT_MAX])
{
    char path[512];
    struct input *input = NULL;
    bool found = false;
    size_t length = 0;
    strcpy(path, fixture_path(fixture, name));
    const struct corpus_file file = {.path = path};
    out[0] = '\0';
    TRY(input_open(fixture->mem, &file, NULL, 0, false, &input));
    enum gt_status status = input_next(input, &found);
    while (status == GT_OK && found) {
        length +=
            (size_t)snprintf(out + length, TEXT_MAX - length, "%s=", input_info_get(input)->name);
        size_t got = 1;
        while (status == GT_OK && got > 0) {
            ck_assert_uint_lt(length + 101, TEXT_MAX);
            status = input_read(input, (unsigned char *)out + length, 100, &got);
            length += status == GT_OK ? got : 0;
        }
        out[length++] = '|';
        out[length] = '\0';
        if (status == GT_OK)
            status = input_next(input, &found);
    }
    hostmem_free(input);
    return status;
}

static void expect_texts(struct data_fixture *fixture, const char *name, const char *expected)
{
    char text[TEXT_MAX];
    ck_assert_msg(read_all(fixture, name, text) == GT_OK, "%s", fixture->line);
    ck_assert_str_eq(text, expected);
}

static void expect_refused(struct data_fixture *fixture, const char *name, const char *says)
{
    char text[TEXT_MAX];
    const size_t errors = log_count(LOG_ERROR);
    ck_assert_int_eq(read_all(fixture, name, text), GT_DATA);
    ck_assert_uint_eq(log_count(LOG_ERROR), errors + 1);
    FIXTURE_SAYS(fixture, says);
}

static const struct member plain_members[] = {
    {"b.txt", "second", 6, AE_IFREG},    {"folder", NULL, 0, AE_IFDIR},
    {"link", NULL, 0, AE_IFLNK},         {".hidden", "x", 1, AE_IFREG},
    {"folder/.git/x", "x", 1, AE_IFREG}, {"./folder/a.txt", "first", 5, AE_IFREG},
    {"empty", "", 0, AE_IFREG}};
enum { PLAIN_COUNT = sizeof plain_members / sizeof plain_members[0] };

TEST(archive_members_in_order)
{
    static unsigned char bytes[ARCHIVE_BYTES_MAX];
    static const struct {
        const char *name;
        int (*add_filter)(struct archive *archive);
    } kinds[] = {{"a.tar", archive_write_add_filter_none},
                 {"a.tgz", archive_write_add_filter_gzip},
                 {"a.tar.bz2", archive_write_add_filter_bzip2},
                 {"a.tar.xz", archive_write_add_filter_xz},
                 {"a.tar.zst", archive_write_add_filter_zstd}};
    struct data_fixture fixture;
    fixture_open(&fixture);
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        const size_t size = tar_make(bytes, kinds[i].add_filter, plain_members, PLAIN_COUNT);
        fixture_write(&fixture, kinds[i].name, bytes, size);
        expect_texts(&fixture, kinds[i].name, "b.txt=second|./folder/a.txt=first|empty=|");
    }
    fixture_close(&fixture);
}

/* A tar inside a tar, up to the allowed depth and one beyond. */
TEST(archive_levels)
{
    static unsigned char bytes[2][ARCHIVE_BYTES_MAX];
    struct data_fixture fixture;
    fixture_open(&fixture);
    const struct member text = {"in.txt", "inner", 5, AE_IFREG};
    size_t size = tar_make(bytes[0], archive_write_add_filter_gzip, &text, 1);
    for (int level = 1; level < INPUT_DEPTH_MAX; level++) {
        const struct member inner[2] = {{"x.tar.gz", bytes[(level + 1) % 2], size, AE_IFREG},
                                        {"y.txt", "after", 5, AE_IFREG}};
        size = tar_make(bytes[level % 2], archive_write_add_filter_gzip, inner, 2);
    }
    const int last = (INPUT_DEPTH_MAX - 1) % 2;
    fixture_write(&fixture, "deep.tar.gz", bytes[last], size);
    expect_texts(&fixture, "deep.tar.gz", "in.txt=inner|y.txt=after|y.txt=after|y.txt=after|");
    const struct member more = {"x.tar.gz", bytes[last], size, AE_IFREG};
    size = tar_make(bytes[1 - last], archive_write_add_filter_gzip, &more, 1);
    fixture_write(&fixture, "deeper.tar.gz", bytes[1 - last], size);
    expect_refused(&fixture, "deeper.tar.gz", "are followed to a depth of 4");
    fixture_close(&fixture);
}

TEST(archive_refusals)
{
    static unsigned char bytes[ARCHIVE_BYTES_MAX];
    static const char *const bad_names[] = {"../x", "a/../x", "/x", "a/..", ".."};
    struct data_fixture fixture;
    struct input *input = NULL;
    fixture_open(&fixture);
    for (size_t i = 0; i < sizeof bad_names / sizeof bad_names[0]; i++) {
        const struct member member = {bad_names[i], "x", 1, AE_IFREG};
        fixture_write(&fixture, "a.tar", bytes,
                      tar_make(bytes, archive_write_add_filter_none, &member, 1));
        expect_refused(&fixture, "a.tar", bad_names[i]);
    }
    fixture_write_text(&fixture, "a.gz", "");
    expect_refused(&fixture, "a.gz", "a.gz: the file is empty");
    fixture_write_text(&fixture, "a.gz", "plain text");
    expect_refused(&fixture, "a.gz", "a.gz: is neither compressed nor a tar archive");
    const struct corpus_file missing = {.path = fixture_path(&fixture, "none.gz")};
    ck_assert_int_eq(input_open(fixture.mem, &missing, NULL, 0, false, &input), GT_IO);
    for (size_t n = 1; n <= 2; n++) {
        hostmem_fail_at(fixture.mem, n);
        ck_assert_int_eq(input_open(fixture.mem, &missing, NULL, 0, false, &input), GT_NO_MEMORY);
    }
    fixture_close(&fixture);
}

#endif
