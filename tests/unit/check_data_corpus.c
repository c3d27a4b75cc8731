/* Tests of src/data/corpus.c: the listed files, their order, and the checksum of the list. */
#include "data/corpus.h"

#include <fcntl.h>

#include "base/file.h"
#include "tests/unit/data_fixture.h"

static bool name_is_output(const char *name)
{
    return strcmp(name, "train.bin") == 0 || strcmp(name, "gpt_tokenizer.json") == 0;
}

static void make_tree(struct data_fixture *fixture)
{
    static const char *const files[] = {"in/b.txt",         "in/a.txt",       "in/a/z.txt",
                                        "in/a/deep/x.txt",  "in/.hidden",     "in/.git/conf",
                                        "in/out/train.bin", "in/out/own.txt", "single.txt"};
    static const char *const folders[] = {"in", "in/a", "in/a/deep", "in/.git", "in/out", "in/empty"};
    char target[600];
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++)
        fixture_make_folder(fixture, folders[i]);
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++)
        fixture_write_text(fixture, files[i], "text\n");
    snprintf(target, sizeof target, "%s/single.txt", fixture->folder);
    ck_assert_int_eq(symlink(target, fixture_path(fixture, "in/link.txt")), 0);
    ck_assert_int_eq(symlink("..", fixture_path(fixture, "in/a/loop")), 0);
    ck_assert_int_eq(mkfifo(fixture_path(fixture, "in/pipe"), 0600), 0);
}

static void expect_files(const struct data_fixture *fixture, const struct corpus *corpus, const char *const *names,
                         size_t count)
{
    ck_assert_uint_eq(corpus->file_count, count);
    ck_assert_uint_eq(corpus->size_bytes, 5 * count);
    for (size_t i = 0; i < count; i++)
        ck_assert_str_eq(corpus->files[i].path + strlen(fixture->folder) + 1, names[i]);
}

TEST(corpus_lists_sorted_regular_files)
{
    struct data_fixture fixture;
    struct corpus *corpus = NULL;
    char in[512], single[512], out[512];
    fixture_open(&fixture);
    make_tree(&fixture);
    strcpy(in, fixture_path(&fixture, "in"));
    strcpy(out, fixture_path(&fixture, "in/out"));
    strcpy(single, fixture_path(&fixture, "single.txt"));
    const char *inputs[3] = {single, in, out};
    struct corpus_spec spec = {.inputs = inputs, .input_count = 2, .out_dir = out, .is_output = name_is_output};
    ck_assert_int_eq(corpus_create(fixture.mem, &spec, &corpus), GT_OK);
    static const char *const expected[] = {"single.txt", "in/a.txt", "in/a/deep/x.txt", "in/a/z.txt", "in/b.txt"};
    expect_files(&fixture, corpus, expected, 5);
    ck_assert(corpus->files[0].input == 0 && !corpus->files[0].from_folder);
    ck_assert(corpus->files[1].input == 1 && corpus->files[1].from_folder);
    hostmem_free(corpus);
    spec.inputs = inputs + 2; /* the output folder itself: all files except the outputs */
    spec.input_count = 1;
    ck_assert_int_eq(corpus_create(fixture.mem, &spec, &corpus), GT_OK);
    static const char *const own[] = {"in/out/own.txt"};
    expect_files(&fixture, corpus, own, 1);
    hostmem_free(corpus);
    fixture_close(&fixture);
}

TEST(corpus_bad_inputs_are_refused)
{
    struct data_fixture fixture;
    struct corpus *corpus = NULL;
    fixture_open(&fixture);
    make_tree(&fixture);
    char missing[512], pipe_path[512];
    strcpy(missing, fixture_path(&fixture, "none.txt"));
    strcpy(pipe_path, fixture_path(&fixture, "in/pipe"));
    const char *inputs[2] = {missing, pipe_path};
    struct corpus_spec spec = {.inputs = inputs, .input_count = 1};
    ck_assert_int_eq(corpus_create(fixture.mem, &spec, &corpus), GT_USAGE);
    FIXTURE_SAYS(&fixture, "none.txt: No such file");
    spec.inputs = inputs + 1;
    ck_assert_int_eq(corpus_create(fixture.mem, &spec, &corpus), GT_USAGE);
    FIXTURE_SAYS(&fixture, "neither a regular file nor a folder");
    ck_assert_ptr_null(corpus);
    fixture_close(&fixture);
}

/* A file that the output would replace cannot be an input, by its name in out_dir or through a link to it. */
TEST(corpus_refuses_outputs)
{
    struct data_fixture fixture;
    struct corpus *corpus = NULL;
    char out[512], own[512], other[512], link_path[512], around[600];
    fixture_open(&fixture);
    fixture_make_folder(&fixture, "out");
    fixture_write_text(&fixture, "out/train.bin", "x");
    fixture_write_text(&fixture, "out/own.txt", "x");
    fixture_write_text(&fixture, "train.bin", "x");
    strcpy(out, fixture_path(&fixture, "out"));
    strcpy(own, fixture_path(&fixture, "out/train.bin"));
    strcpy(link_path, fixture_path(&fixture, "link"));
    ck_assert_int_eq(symlink(own, link_path), 0);
    snprintf(around, sizeof around, "%s/../out/train.bin", out);
    const char *const bad[] = {own, link_path, around};
    struct corpus_spec spec = {.input_count = 1, .out_dir = out, .is_output = name_is_output};
    for (int i = 0; i < 3; i++) {
        spec.inputs = bad + i;
        ck_assert_int_eq(corpus_create(fixture.mem, &spec, &corpus), GT_USAGE);
        FIXTURE_SAYS(&fixture, "the output would replace this file");
    }
    for (int i = 0; i < 2; i++) {
        strcpy(other, fixture_path(&fixture, i == 0 ? "train.bin" : "out/own.txt"));
        const char *const good[] = {other};
        spec.inputs = good;
        ck_assert_int_eq(corpus_create(fixture.mem, &spec, &corpus), GT_OK);
        hostmem_free(corpus);
    }
    fixture_close(&fixture);
}

static uint32_t list_crc32c(struct data_fixture *fixture)
{
    struct corpus *corpus = NULL;
    char in[512];
    strcpy(in, fixture_path(fixture, "in"));
    const char *inputs[1] = {in};
    const struct corpus_spec spec = {.inputs = inputs, .input_count = 1};
    ck_assert_int_eq(corpus_create(fixture->mem, &spec, &corpus), GT_OK);
    const uint32_t hash = corpus_crc32c(corpus);
    hostmem_free(corpus);
    return hash;
}

/* The checksum changes with any name, size or time. */
TEST(corpus_checksum_sees_changes)
{
    struct data_fixture fixture;
    uint32_t seen[5];
    char from[512];
    const struct timespec times[2] = {{.tv_sec = 1000}, {.tv_sec = 1000, .tv_nsec = 1}};
    fixture_open(&fixture);
    fixture_make_folder(&fixture, "in");
    fixture_write_text(&fixture, "in/a.txt", "abc");
    ck_assert_int_eq(utimensat(AT_FDCWD, fixture_path(&fixture, "in/a.txt"), times, 0), 0);
    seen[0] = list_crc32c(&fixture);
    ck_assert(list_crc32c(&fixture) == seen[0]);
    fixture_write_text(&fixture, "in/b.txt", "");
    seen[1] = list_crc32c(&fixture);
    strcpy(from, fixture_path(&fixture, "in/b.txt"));
    ck_assert_int_eq(rename(from, fixture_path(&fixture, "in/c.txt")), 0);
    seen[2] = list_crc32c(&fixture);
    fixture_write_text(&fixture, "in/c.txt", "d");
    seen[3] = list_crc32c(&fixture);
    ck_assert_int_eq(utimensat(AT_FDCWD, fixture_path(&fixture, "in/c.txt"), times, 0), 0);
    seen[4] = list_crc32c(&fixture);
    for (int i = 0; i < 5; i++)
        for (int k = 0; k < i; k++)
            ck_assert_uint_ne(seen[i], seen[k]);
    fixture_close(&fixture);
}
