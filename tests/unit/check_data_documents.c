/* Tests of src/data/documents.c: documents of texts and of JSONL, long ones, and the places where texts are cut. */
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

static void expect_documents(struct data_fixture *fixture, const char *name, struct documents_spec spec,
                             const char *expected)
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
    fixture_write_text(&fixture, "c.txt",
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
                                marks = {.end = DOCUMENTS_END_OF_TEXT}, as_text = {.format = DOCUMENTS_TEXT};
    fixture_open(&fixture);
    fixture_write_text(&fixture, "a.txt", "\xef\xbb\xbfone\r\n\r\ntwo\rthree\n");
    expect_documents(&fixture, "a.txt", by_name, "one\n\ntwo\nthree\n|");
    expect_documents(&fixture, "a.txt", blank, "one\n\n|two\nthree\n|");
    expect_documents(&fixture, "a.txt", as_text, "\xef\xbb\xbfone\r\n\r\ntwo\rthree\n|");
    fixture_write_text(&fixture, "b.txt", "\xef\xbb\xbfone\r\n<|endoftext|>\r\ntwo\r\n<|endoftext|>\r\n");
    expect_documents(&fixture, "b.txt", marks, "one\n|two\n|");
    fixture_write(&fixture, "c.txt", "\xef\xbb\xbfno text\0\r\n", 13);
    struct reading reading;
    char text[TEXT_MAX];
    reading_open(&fixture, "c.txt", by_name, &reading);
    read_all(&reading, text);
    ck_assert_int_eq(memcmp(text, "\xef\xbb\xbfno text\0\r\n|", 14), 0);
    ck_assert_uint_eq(documents_state_get(reading.documents)->converted_count, 0);
    reading_close(&reading);
    fixture_write_text(&fixture, "d.jsonl", "\xef\xbb\xbf{\"text\":\"x\\r\\ny\"}\r\n{\"text\":\"z\"}\r\n");
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
        reading_open(&fixture, "a.txt", (struct documents_spec){.end = DOCUMENTS_END_OF_TEXT}, &reading);
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
    const struct documents_spec by_name = {.quiet = false}, skip = {.skip_bad_lines = true}, field = {.field = "b"},
                                as_text = {.format = DOCUMENTS_TEXT};
    fixture_open(&fixture);
    fixture_write_text(&fixture, "a.jsonl", "{\"text\":\"x\"}\n\n{\"text\":\"\"}\n{\"text\":\"y\\n\",\"b\":\"z\"}");
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

/* A document of more than two parts is returned whole, and marked as continued. */
TEST(documents_longer_than_a_part)
{
    struct data_fixture fixture;
    struct reading reading;
    struct document document;
    const size_t size = 2 * DOCUMENT_BYTES_MAX + 12345;
    bool found = true;
    size_t at = 0, parts = 0;
    char *text = malloc(size);
    for (size_t i = 0; i < size; i++)
        text[i] = i % 11 == 10 ? ' ' : (char)('a' + i % 7);
    fixture_open(&fixture);
    fixture_write(&fixture, "long.txt", text, size);
    reading_open(&fixture, "long.txt", (struct documents_spec){.quiet = false}, &reading);
    while (found) {
        ck_assert_int_eq(documents_next(reading.documents, &document, &found), GT_OK);
        if (!found)
            break;
        ck_assert(document.continues == (parts > 0) && document.unfinished == (at + document.count < size));
        ck_assert_int_eq(memcmp(document.text, text + at, document.count), 0);
        at += document.count;
        ck_assert(at == size || text[at] == ' ');
        parts++;
    }
    ck_assert(at == size && parts == 3);
    ck_assert_uint_eq(documents_state_get(reading.documents)->document_count, 1);
    ck_assert_uint_eq(documents_state_get(reading.documents)->long_count, 1);
    free(text);
    reading_close(&reading);
    fixture_close(&fixture);
}

static void expect_cut(const char *text, size_t at, bool forced)
{
    bool was_forced = !forced;
    ck_assert_uint_eq(bpe_split_cut(text, strlen(text), false, &was_forced), at);
    ck_assert_int_eq(was_forced, forced);
}

/* Cuts only before a space or newline that follows a character that is certainly not white space; else between
 * characters. */
TEST(bpe_split_cut_places)
{
    expect_cut("one two three", 7, false);
    expect_cut("one two\nthree", 7, false);
    expect_cut("one two  ", 7, false);
    expect_cut("one\n\n two\t ", 7 - 4, false);
    expect_cut("one", 3, true);
    expect_cut(" one", 4, true);
    expect_cut("\n\n\n", 3, true);
    expect_cut("a\xC3\xA9 b", 3, false);         /* e acute */
    expect_cut("a\xC2\xA0 b", 5, true);          /* a no-break space is white space */
    expect_cut("a\xE2\x80\x83 b", 6, true);      /* em space */
    expect_cut("a\xE3\x80\x80 b", 6, true);      /* ideographic space */
    expect_cut("a\xE6\x97\xA5 b", 4, false);     /* a Chinese character */
    expect_cut("a\xF0\x9F\x98\x80 b", 5, false); /* an emoji */
    expect_cut("a\xE6\x97 b", 5, true);          /* not UTF-8: left alone */
    expect_cut("aaa\xE6\x97", 3, true);          /* not inside a character */
    expect_cut("aaa\xF0\x9F\x98", 3, true);
    expect_cut("\x80\x80\x80\x80\x80", 5, true);
}

static void make_corpus(struct data_fixture *fixture)
{
    fixture_make_folder(fixture, "in");
    fixture_write_text(fixture, "in/a.txt", "one\n\ntwo\n\n\n\nthree");
    fixture_write(fixture, "in/b.bin", "\0\1", 2);
    fixture_write_text(fixture, "in/c.jsonl", "{\"text\":\"x\"}\nbad\n\n{\"text\":\"\"}\n{\"text\":\"y\"}\n");
    fixture_write_text(fixture, "in/d.txt", "");
    fixture_write_text(fixture, "in/e.txt", "four\n\nfive\n");
}

TEST(documents_of_several_files)
{
    const struct documents_spec spec = {.end = DOCUMENTS_BLANK_LINE, .skip_bad_lines = true};
    struct data_fixture fixture;
    fixture_open(&fixture);
    make_corpus(&fixture);
    expect_documents(&fixture, "in", spec, "one\n\n|two\n\n|\n\n|three|x|y|four\n\n|five\n|");
    fixture_close(&fixture);
}

/* A file may grow, be cut, be rewritten with as many bytes, or be removed after it was listed. */
TEST(documents_listed_files_are_compared)
{
    static const char *const changes[] = {"printf d >>", "printf ab >", "touch -d 2001-01-01", "rm"};
    struct data_fixture fixture;
    struct reading reading;
    struct document document;
    char command[600];
    fixture_open(&fixture);
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        enum gt_status status = GT_OK;
        bool found = true;
        fixture_write_text(&fixture, "a.txt", "abc");
        reading_open(&fixture, "a.txt", (struct documents_spec){.quiet = false}, &reading);
        if (i == 3) /* is open already */
            ck_assert_int_eq(documents_next(reading.documents, &document, &found), GT_OK);
        snprintf(command, sizeof command, "%s '%s/a.txt'", changes[i], fixture.folder);
        ck_assert_int_eq(system(command), 0);
        while (status == GT_OK && found)
            status = documents_next(reading.documents, &document, &found);
        ck_assert_msg(status == GT_DATA, "%s: %s", changes[i], fixture.line);
        FIXTURE_SAYS(&fixture, i == 3 ? "a.txt: the file was removed" : "a.txt: the file changed while it was read");
        reading_close(&reading);
    }
    fixture_close(&fixture);
}

/* Files of a folder that are not text are left out; named ones are refused with a hint; --format=text accepts all. */
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
    ck_assert(strcmp(state->kinds[1].name, ".json") == 0 && strcmp(state->kinds[2].name, "no extension") == 0);
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
    ck_assert_uint_eq(state->kinds[DOCUMENTS_KINDS_MAX - 1].count, 3 + 20 - (DOCUMENTS_KINDS_MAX - 1));
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
        ck_assert(found && document.count == 19 && memcmp(document.text, "あいうえおab\n\n", 19) == 0);
    }
    ck_assert_int_eq(documents_next(reading.documents, &document, &found), GT_OK);
    ck_assert(found && document.count == 5 && memcmp(document.text, "日\n\n", 5) == 0);
    ck_assert_int_eq(documents_next(reading.documents, &document, &found), GT_OK);
    ck_assert(found && document.count == 3 && memcmp(document.text, "本", 3) == 0);
    reading_close(&reading);
    fixture_close(&fixture);
}
#endif
