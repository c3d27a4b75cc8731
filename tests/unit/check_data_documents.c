/* Tests of src/data/documents.c: documents of texts, long ones, and the places where texts are cut.
 * prepare_inputs.py has the formats. */
#include "data/documents.h"

#include "tests/unit/data_fixture.h"

enum { TEXT_MAX = 4096 };

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
