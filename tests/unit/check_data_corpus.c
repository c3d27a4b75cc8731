/* Tests of src/data/corpus.c: what is listed, in which order, and reading in pieces. */
#include "data/corpus.h"

#include "base/file.h"
#include "tests/unit/data_fixture.h"

static const char *const out_names[] = {"train.bin", "gpt_tokenizer.json"};

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

START_TEST(corpus_lists_sorted_regular_files)
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
    struct corpus_spec spec = {
        .inputs = inputs, .input_count = 2, .out_dir = out, .out_names = out_names, .out_name_count = 2};
    ck_assert_int_eq(corpus_create(fixture.mem, &spec, &corpus), GT_OK);
    static const char *const expected[] = {"single.txt", "in/a.txt", "in/a/deep/x.txt", "in/a/z.txt", "in/b.txt"};
    expect_files(&fixture, corpus, expected, 5);
    ck_assert(corpus->files[0].input == 0 && !corpus->files[0].from_folder);
    ck_assert(corpus->files[1].input == 1 && corpus->files[1].from_folder);
    corpus_destroy(corpus);
    spec.inputs = inputs + 2; /* the output folder itself: all but what is written there */
    spec.input_count = 1;
    ck_assert_int_eq(corpus_create(fixture.mem, &spec, &corpus), GT_OK);
    static const char *const own[] = {"in/out/own.txt"};
    expect_files(&fixture, corpus, own, 1);
    corpus_destroy(corpus);
    fixture_close(&fixture);
}
END_TEST

START_TEST(corpus_bad_inputs_are_refused)
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
END_TEST

START_TEST(corpus_survives_failed_allocations)
{
    struct data_fixture fixture;
    struct corpus *corpus = NULL;
    char in[512];
    fixture_open(&fixture);
    fixture_make_folder(&fixture, "in");
    for (int i = 0; i < 70; i++) { /* the list grows once */
        char name[32];
        snprintf(name, sizeof name, "in/%02d.txt", i);
        fixture_write_text(&fixture, name, "x");
    }
    strcpy(in, fixture_path(&fixture, "in"));
    const char *inputs[1] = {in};
    const struct corpus_spec spec = {.inputs = inputs, .input_count = 1};
    enum gt_status status = GT_NO_MEMORY;
    size_t n = 0;
    while (status == GT_NO_MEMORY && n < 200) {
        hostmem_fail_at(fixture.mem, ++n);
        status = corpus_create(fixture.mem, &spec, &corpus);
    }
    hostmem_fail_at(fixture.mem, 0);
    ck_assert_int_eq(status, GT_OK);
    ck_assert_uint_gt(n, 72);
    ck_assert_uint_eq(corpus->file_count, 70);
    corpus_destroy(corpus);
    fixture_close(&fixture);
}
END_TEST

START_TEST(corpus_reader_keeps_what_is_not_used)
{
    struct data_fixture fixture;
    struct corpus_reader reader;
    unsigned char buffer[7];
    const char *text = "abcdefghijklmnopqrstuvwxyz";
    char seen[64] = "";
    fixture_open(&fixture);
    fixture_write_text(&fixture, "a.txt", text);
    ck_assert_int_eq(corpus_reader_open(&reader, fixture_path(&fixture, "a.txt"), buffer, sizeof buffer, 0), GT_OK);
    ck_assert_int_eq(corpus_reader_fill(&reader), GT_OK);
    for (int i = 0; reader.count > 0 && i < 100; i++) {
        ck_assert_int_eq(reader.bytes[0], text[reader.offset]);
        reader.used = reader.count > 3 ? reader.count - (size_t)(i % 3) : reader.count;
        strncat(seen, (const char *)reader.bytes, reader.used);
        ck_assert_int_eq(corpus_reader_at_end(&reader), reader.offset + reader.count == 26);
        ck_assert_int_eq(corpus_reader_fill(&reader), GT_OK);
    }
    ck_assert_str_eq(seen, text);
    ck_assert_uint_eq(reader.crc32c, file_crc32c(0, text, 26));
    corpus_reader_close(&reader);
    ck_assert_int_eq(corpus_reader_open(&reader, fixture.path, buffer, sizeof buffer, 0), GT_OK);
    ck_assert_int_eq(truncate(fixture.path, 9), 0);
    ck_assert_int_eq(corpus_reader_fill(&reader), GT_OK);
    reader.used = reader.count;
    ck_assert_int_eq(corpus_reader_fill(&reader), GT_DATA);
    FIXTURE_SAYS(&fixture, "a.txt");
    corpus_reader_close(&reader);
    fixture_close(&fixture);
}
END_TEST

Suite *data_corpus_suite(void)
{
    Suite *suite = suite_create("data_corpus");
    TCase *cases = tcase_create("all");
    tcase_add_test(cases, corpus_lists_sorted_regular_files);
    tcase_add_test(cases, corpus_bad_inputs_are_refused);
    tcase_add_test(cases, corpus_survives_failed_allocations);
    tcase_add_test(cases, corpus_reader_keeps_what_is_not_used);
    suite_add_tcase(suite, cases);
    return suite;
}

UNIT_MAIN(data_corpus)
