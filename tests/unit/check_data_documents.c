/* Tests of src/data/documents.c: documents of texts and of JSONL, long ones, and the places where
 * texts are cut. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "data/documents.h"

#include "tests/unit/data_fixture.h"

enum { DOCUMENTS_MAX = 64, TEXT_MAX = 4096 };

struct reading {
    struct corpus *corpus;
    struct documents *documents;
    struct documents_input input;
};

static void reading_open(struct data_fixture *fixture, const char *name, struct documents_spec spec,
                         struct reading *out)
{
    char path[512];
    strcpy(path, fixture_path(fixture, name));
    const char *inputs[1] = {path};
    const struct corpus_spec corpus_spec = {.inputs = inputs, .input_count = 1};
    ck_assert_int_eq(corpus_create(fixture->mem, &corpus_spec, &out->corpus), GT_OK);
    spec.corpus = out->corpus;
    spec.inputs = &out->input;
    spec.field = spec.field != NULL ? spec.field : "text";
    ck_assert_int_eq(documents_create(fixture->mem, &spec, &out->documents), GT_OK);
}

static void reading_close(struct reading *reading)
{
    hostmem_free(reading->documents);
    hostmem_free(reading->corpus);
}

/* Reads all documents into one string, each followed by '|'. */
static void read_all(struct reading *reading, char out[static TEXT_MAX])
{
    struct document document;
    bool found = true;
    size_t length = 0;
    while (found) {
        ck_assert_int_eq(documents_next(reading->documents, &document, &found), GT_OK);
        if (!found)
            break;
        ck_assert_uint_lt(length + document.count + 2, TEXT_MAX);
        memcpy(out + length, document.text, document.count);
        length += document.count;
        out[length++] = '|';
    }
    out[length] = '\0';
}

static void expect_documents(struct data_fixture *fixture, const char *name,
                             struct documents_spec spec, const char *expected)
{
    struct reading reading;
    char text[TEXT_MAX];
    reading_open(fixture, name, spec, &reading);
    read_all(&reading, text);
    ck_assert_str_eq(text, expected);
    reading_close(&reading);
}

TEST(documents_of_texts)
{
    struct data_fixture fixture;
    struct reading reading;
    char text[TEXT_MAX];
    const struct documents_spec whole = {.quiet = false}, blank = {.end = DOCUMENTS_BLANK_LINE};
    fixture_open(&fixture);
    fixture_write_text(&fixture, "a.txt", "one\n\ntwo\n\n\n\nthree\n\n");
    expect_documents(&fixture, "a.txt", whole, "one\n\ntwo\n\n\n\nthree\n\n|");
    expect_documents(&fixture, "a.txt", blank, "one\n\n|two\n\n|\n\n|three\n\n|");
    fixture_write_text(&fixture, "b.txt", "\n\n\nx");
    expect_documents(&fixture, "b.txt", blank, "\n\n|\nx|");
    const struct documents_spec marked = {.end = DOCUMENTS_END_OF_TEXT};
    fixture_write_text(
        &fixture, "c.txt",
        "one\n<|endoftext|>\ntwo <|endoftext> \n<|endoftext|>\n\n<|endoftext|>three>");
    expect_documents(&fixture, "c.txt", marked, "one\n|two <|endoftext> \n|\n|three>|");
    fixture_write_text(&fixture, "d.txt", "\n<|endoftext|><|endoftext|>\n<|endoftext|>");
    expect_documents(&fixture, "d.txt", marked, "\n|");
    fixture_make_folder(&fixture, "in");
    fixture_write_text(&fixture, "in/a", "first");
    fixture_write_text(&fixture, "in/b", "");
    fixture_write(&fixture, "in/c", "bi\0nary", 7);
    fixture_write_text(&fixture, "in/d", "last");
    reading_open(&fixture, "in", whole, &reading);
    read_all(&reading, text);
    ck_assert_str_eq(text, "first|last|");
    const struct documents_state *state = documents_state_get(reading.documents);
    ck_assert(state->document_count == 2 && state->empty_count == 1 && state->skipped_count == 1);
    ck_assert(state->file_count == 3 && state->text_bytes == 9);
    const struct documents_input *input = &reading.input;
    ck_assert(input->file_count == 3 && input->skipped_count == 1 && input->size_bytes == 9);
    reading_close(&reading);
    fixture_close(&fixture);
}

/* "\r\n" and "\r" are read as "\n", wherever the blocks of 1 MiB end. */
TEST(documents_line_ends_across_blocks)
{
    struct data_fixture fixture;
    const size_t block = (size_t)1 << 20;
    char *text = malloc(3 * block), *expected = malloc(3 * block);
    fixture_open(&fixture);
    for (size_t before = 0; before <= 4; before++) {
        struct reading reading;
        struct document document;
        bool found = false;
        memset(text, 'a', 3 * block);
        memcpy(text + block - before, "\r\n\r\r\n", 5);
        memcpy(text + 2 * block - before, "\n\r", 2);
        memcpy(text + 3 * block - 1, "\r", 1);
        memset(expected, 'a', 3 * block);
        memcpy(expected + block - before, "\n\n\n", 3);
        memcpy(expected + 2 * block - before - 2, "\n\n", 2);
        memcpy(expected + 3 * block - 3, "\n", 1);
        fixture_write(&fixture, "a.txt", text, 3 * block);
        reading_open(&fixture, "a.txt", (struct documents_spec){.quiet = false}, &reading);
        ck_assert_int_eq(documents_next(reading.documents, &document, &found), GT_OK);
        ck_assert(found && document.count == 3 * block - 2 && !document.unfinished);
        ck_assert_int_eq(memcmp(document.text, expected, document.count), 0);
        ck_assert_uint_eq(documents_state_get(reading.documents)->line_end_count, 5);
        ck_assert_uint_eq(documents_state_get(reading.documents)->converted_count, 1);
        reading_close(&reading);
    }
    free(text);
    free(expected);
    fixture_close(&fixture);
}

TEST(documents_of_windows)
{
    struct data_fixture fixture;
    const struct documents_spec by_name = {.quiet = false}, blank = {.end = DOCUMENTS_BLANK_LINE},
                                marks = {.end = DOCUMENTS_END_OF_TEXT},
                                as_text = {.format = DOCUMENTS_TEXT};
    fixture_open(&fixture);
    fixture_write_text(&fixture, "a.txt", "\xef\xbb\xbfone\r\n\r\ntwo\rthree\n");
    expect_documents(&fixture, "a.txt", by_name, "one\n\ntwo\nthree\n|");
    expect_documents(&fixture, "a.txt", blank, "one\n\n|two\nthree\n|");
    expect_documents(&fixture, "a.txt", as_text, "\xef\xbb\xbfone\r\n\r\ntwo\rthree\n|");
    fixture_write_text(&fixture, "b.txt",
                       "\xef\xbb\xbfone\r\n<|endoftext|>\r\ntwo\r\n<|endoftext|>\r\n");
    expect_documents(&fixture, "b.txt", marks, "one\n|two\n|");
    fixture_write(&fixture, "c.txt", "\xef\xbb\xbfno text\0\r\n", 13);
    struct reading reading;
    char text[TEXT_MAX];
    reading_open(&fixture, "c.txt", by_name, &reading);
    read_all(&reading, text);
    ck_assert_int_eq(memcmp(text, "\xef\xbb\xbfno text\0\r\n|", 14), 0);
    ck_assert_uint_eq(documents_state_get(reading.documents)->converted_count, 0);
    reading_close(&reading);
    fixture_write_text(&fixture, "d.jsonl",
                       "\xef\xbb\xbf{\"text\":\"x\\r\\ny\"}\r\n{\"text\":\"z\"}\r\n");
    expect_documents(&fixture, "d.jsonl", by_name, "x\r\ny|z|");
    fixture_write_text(&fixture, "e.txt", "\xef\xbb\xbf"); /* nothing but the mark */
    expect_documents(&fixture, "e.txt", by_name, "");
    fixture_close(&fixture);
}

/* Places an end mark at every position around the border of two blocks of 1 MiB. */
TEST(documents_marks_across_blocks)
{
    struct data_fixture fixture;
    const size_t block = (size_t)1 << 20;
    char *text = malloc(block + 64);
    fixture_open(&fixture);
    for (size_t before = 0; before <= 14; before++) {
        struct reading reading;
        struct document document;
        bool found = false;
        memset(text, 'a', block + 64);
        memcpy(text + block - before, "<|endoftext|>\n", 14);
        fixture_write(&fixture, "a.txt", text, block + 30);
        reading_open(&fixture, "a.txt", (struct documents_spec){.end = DOCUMENTS_END_OF_TEXT},
                     &reading);
        ck_assert_int_eq(documents_next(reading.documents, &document, &found), GT_OK);
        ck_assert(found && document.count == block - before && !document.unfinished);
        ck_assert_int_eq(documents_next(reading.documents, &document, &found), GT_OK);
        ck_assert(found && document.count == 16 + before && document.text[0] == 'a');
        reading_close(&reading);
    }
    free(text);
    fixture_close(&fixture);
}

TEST(documents_of_jsonl)
{
    struct data_fixture fixture;
    struct reading reading;
    struct document document;
    bool found = false;
    const struct documents_spec by_name = {.quiet = false}, skip = {.skip_bad_lines = true},
                                field = {.field = "b"}, as_text = {.format = DOCUMENTS_TEXT};
    fixture_open(&fixture);
    fixture_write_text(&fixture, "a.jsonl",
                       "{\"text\":\"x\"}\n\n{\"text\":\"\"}\n{\"text\":\"y\\n\",\"b\":\"z\"}");
    expect_documents(&fixture, "a.jsonl", by_name, "x|y\n|");
    fixture_write_text(&fixture, "b.jsonl", "{\"b\":\"x\"}\n");
    expect_documents(&fixture, "b.jsonl", field, "x|");
    expect_documents(&fixture, "b.jsonl", as_text, "{\"b\":\"x\"}\n|");
    fixture_write_text(&fixture, "c.jsonl", "{\"text\":\"x\"}\nnot json\n{\"text\":\"y\"}\n");
    expect_documents(&fixture, "c.jsonl", skip, "x|y|");
    reading_open(&fixture, "c.jsonl", by_name, &reading);
    ck_assert_int_eq(documents_next(reading.documents, &document, &found), GT_OK);
    const size_t errors = log_count(LOG_ERROR);
    ck_assert_int_eq(documents_next(reading.documents, &document, &found), GT_DATA);
    ck_assert_uint_eq(log_count(LOG_ERROR), errors + 1);
    FIXTURE_SAYS(&fixture, "c.jsonl: line 2: column 3: not valid JSON");
    reading_close(&reading);
    fixture_close(&fixture);
}

/* Files of a folder that are not text are left out; named ones are refused with a hint;
 * --format=text accepts all. */
TEST(documents_that_are_no_text)
{
    struct data_fixture fixture;
    struct reading reading;
    struct document document;
    char text[TEXT_MAX];
    bool found = false;
    const struct documents_spec any = {.quiet = false}, raw = {.format = DOCUMENTS_TEXT};
    fixture_open(&fixture);
    fixture_make_folder(&fixture, "in");
    fixture_write_text(&fixture, "in/a.txt", "text");
    fixture_write_text(&fixture, "in/b.parquet", "PAR1 and so on");
    fixture_write_text(&fixture, "in/c.parquet", "PAR1 and so on");
    fixture_write_text(&fixture, "in/d.json", "[{\"text\": \"x\"}]");
    fixture_write(&fixture, "in/it's", "%PDF-\0", 6);
    reading_open(&fixture, "in", any, &reading);
    read_all(&reading, text);
    ck_assert_str_eq(text, "text|");
    const struct documents_state *state = documents_state_get(reading.documents);
    ck_assert_uint_eq(state->skipped_count, 4);
    ck_assert(strcmp(state->kinds[0].name, ".parquet") == 0 && state->kinds[0].count == 2);
    ck_assert(strcmp(state->kinds[1].name, ".json") == 0 &&
              strcmp(state->kinds[2].name, "no extension") == 0);
    reading_close(&reading);
    expect_documents(&fixture, "in/b.parquet", raw, "PAR1 and so on|");
    reading_open(&fixture, "in/it's", any, &reading);
    ck_assert_int_eq(documents_next(reading.documents, &document, &found), GT_USAGE);
    FIXTURE_SAYS(&fixture, "pdftotext '");
    FIXTURE_SAYS(&fixture, "it'\\''s' text.txt");
    reading_close(&reading);
    for (int i = 0; i < 20; i++) {
        char name[32];
        snprintf(name, sizeof name, "in/x.e%d", i);
        fixture_write(&fixture, name, "\0", 1);
    }
    reading_open(&fixture, "in", any, &reading);
    read_all(&reading, text);
    state = documents_state_get(reading.documents);
    ck_assert_str_eq(state->kinds[DOCUMENTS_KINDS_MAX - 1].name, "other");
    ck_assert_uint_eq(state->kinds[DOCUMENTS_KINDS_MAX - 1].count,
                      3 + 20 - (DOCUMENTS_KINDS_MAX - 1));
    reading_close(&reading);
    fixture_close(&fixture);
}

#ifdef HAVE_ICONV
/* Paragraphs of UTF-16, detected by its mark, and of Shift_JIS. */
TEST(documents_in_other_encodings)
{
    struct data_fixture fixture;
    struct reading reading;
    struct document document;
    bool found = false;
    const size_t lines = 130000; /* 9 characters each: three blocks of UTF-8 */
    char *bytes = malloc(lines * 18 + 2);
    fixture_open(&fixture);
    fixture_make_folder(&fixture, "in");
    memcpy(bytes, "\xff\xfe", 2);
    for (size_t i = 0; i < lines; i++)
        memcpy(bytes + 2 + 18 * i,
               "\x42\x30\x44\x30\x46\x30\x48\x30\x4a\x30"
               "a\0b\0\n\0\n",
               18);
    fixture_write(&fixture, "in/a.txt", bytes, 2 + 18 * lines);
    fixture_write_text(&fixture, "in/b.txt", "\x93\xfa\n\n\x96{");
    free(bytes);
    const struct documents_spec spec = {.end = DOCUMENTS_BLANK_LINE, .encoding = "SHIFT_JIS"};
    reading_open(&fixture, "in", spec, &reading);
    for (size_t i = 0; i < lines; i++) {
        ck_assert_int_eq(documents_next(reading.documents, &document, &found), GT_OK);
        ck_assert(found && document.count == 19 &&
                  memcmp(document.text, "あいうえおab\n\n", 19) == 0);
    }
    ck_assert_int_eq(documents_next(reading.documents, &document, &found), GT_OK);
    ck_assert(found && document.count == 5 && memcmp(document.text, "日\n\n", 5) == 0);
    ck_assert_int_eq(documents_next(reading.documents, &document, &found), GT_OK);
    ck_assert(found && document.count == 3 && memcmp(document.text, "本", 3) == 0);
    reading_close(&reading);
    fixture_close(&fixture);
}
#endif
