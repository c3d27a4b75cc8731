/* Tests of src/data/input.c: a plain file and standard input as one text, their checksums, and
 * formats by name. */
#include "data/input.h"

#include <fcntl.h>

#include "base/crc32c.h"
#include "base/file.h"
#include "tests/unit/data_fixture.h"

/* Reads the whole text in pieces of `step`. */
static size_t read_text(struct input *input, size_t step, char out[static 64])
{
    size_t count = 0, got = 1;
    while (got > 0) {
        ck_assert_int_eq(input_read(input, (unsigned char *)out + count, step, &got), GT_OK);
        count += got;
    }
    out[count] = '\0';
    return count;
}

TEST(input_plain_file_is_one_text)
{
    struct data_fixture fixture;
    char text[64];
    bool found = false;
    fixture_open(&fixture);
    fixture_write_text(&fixture, "a.txt", "some text");
    for (size_t step = 1; step < 11; step++) {
        struct input *input = NULL;
        const struct corpus_file file = {.path = fixture_path(&fixture, "a.txt")};
        ck_assert_int_eq(input_open(fixture.mem, &file, NULL, 7, false, &input), GT_OK);
        ck_assert_int_eq(input_next(input, &found), GT_OK);
        ck_assert(found && !input_info_get(input)->is_member);
        ck_assert_uint_eq(read_text(input, step, text), 9);
        ck_assert_str_eq(text, "some text");
        ck_assert_int_eq(input_next(input, &found), GT_OK);
        ck_assert(!found && input_info_get(input)->file_bytes == 9);
        ck_assert_uint_eq(input_info_get(input)->crc32c, file_crc32c(7, "some text", 9));
        hostmem_free(input);
    }
    fixture_close(&fixture);
}

TEST(input_standard_input)
{
    struct data_fixture fixture;
    char text[64], copy[512];
    bool found = false;
    const struct corpus_file file = {.path = CORPUS_STDIN, .is_stdin = true};
    fixture_open(&fixture);
    fixture_write_text(&fixture, "pipe", "from a pipe");
    fixture_write_text(&fixture, "copy", "the copy");
    strcpy(copy, fixture_path(&fixture, "copy"));
    const int saved = dup(STDIN_FILENO), fd = open(fixture_path(&fixture, "pipe"), O_RDONLY);
    ck_assert(fd >= 0 && dup2(fd, STDIN_FILENO) == STDIN_FILENO);
    for (int with_copy = 0; with_copy < 2; with_copy++) {
        struct input *input = NULL;
        ck_assert_int_eq(input_open(fixture.mem, &file, with_copy ? copy : NULL, 0, false, &input),
                         GT_OK);
        ck_assert_int_eq(input_next(input, &found), GT_OK);
        ck_assert(found && !input_name_is_jsonl(input_info_get(input)->name));
        ck_assert_str_eq(input_info_get(input)->label, "standard input");
        read_text(input, 5, text);
        ck_assert_str_eq(text, with_copy ? "the copy" : "from a pipe");
        hostmem_free(input);
    }
    close(fd);
    if (saved >= 0) {
        ck_assert_int_eq(dup2(saved, STDIN_FILENO), STDIN_FILENO);
        close(saved);
    }
    fixture_close(&fixture);
}

TEST(input_formats_by_name)
{
    static const struct {
        const char *name;
        bool is_jsonl;
    } names[] = {{"a.jsonl", true}, {"a.ndjson", true},     {"a.json", false},
                 {"jsonl", false},  {"a.jsonl.txt", false}, {".jsonl", true}};
    struct data_fixture fixture;
    bool found = false;
    fixture_open(&fixture);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct input *input = NULL;
        fixture_write_text(&fixture, names[i].name, "");
        const struct corpus_file file = {.path = fixture_path(&fixture, names[i].name)};
        ck_assert_int_eq(input_open(fixture.mem, &file, NULL, 0, false, &input), GT_OK);
        ck_assert_int_eq(input_next(input, &found), GT_OK);
        ck_assert_int_eq(input_name_is_jsonl(input_info_get(input)->name), names[i].is_jsonl);
        hostmem_free(input);
    }
    fixture_close(&fixture);
}

TEST(input_refusals)
{
    struct data_fixture fixture;
    struct input *input = NULL;
    fixture_open(&fixture);
    const struct corpus_file missing = {.path = fixture_path(&fixture, "none.txt")};
    ck_assert_int_eq(input_open(fixture.mem, &missing, NULL, 0, false, &input), GT_IO);
    FIXTURE_SAYS(&fixture, "none.txt");
    hostmem_fail_at(fixture.mem, 1);
    ck_assert_int_eq(input_open(fixture.mem, &missing, NULL, 0, false, &input), GT_NO_MEMORY);
    ck_assert_ptr_null(input);
    fixture_close(&fixture);
}
