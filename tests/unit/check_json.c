/* Tests of base/json: refusals of the parser, one line per bad field with its words, and that
 * written text reads back. */
#include "base/json.h"

#include <stdlib.h>

#include "tests/unit/log_capture.h"
#include "tests/unit/scratch.h"
#include "tests/unit/unit_main.h"

static json_t *parsed(const char *text)
{
    json_t *value = NULL;
    ck_assert_int_eq(json_parse(text, strlen(text), "x.json", &value), GT_OK);
    ck_assert_ptr_nonnull(value);
    return value;
}

static const struct {
    const char *text;
    size_t count; /* 0: strlen */
    const char *words;
} refused[] = {
    {"", 0, "line 1"},
    {"{\"a\": 1, \"a\": 2}", 0, "duplicate"},
    {"{\"a\": 1} {", 0, "end of file expected"},
    {"{\n  \"a\": 1,\n}", 0, "line 3"},
    {"{\"a\": 99999999999999999999}", 0, "big integer"},
    {"{\"a\": 1e999}", 0, "real number overflow"},
    {"{\"a\": NaN}", 0, "line 1"},
    {"{\"a\": \"\xff\"}", 0, "unable to decode byte 0xff"},
    {"{\"a\": \"\\u0000\"}", 0, "u0000"},
    {"{\"a\": 1", 0, "line 1"},
    {"3", 0, "line 1"},
    {"{}\0x", 4, "line 1"},
};

TEST_LOOP(parse_refuses, (int)(sizeof refused / sizeof refused[0]))
{
    struct log_capture capture;
    log_capture_begin(&capture);
    json_t *untouched = (json_t *)&capture;
    json_t *value = untouched;
    const size_t count = refused[_i].count != 0 ? refused[_i].count : strlen(refused[_i].text);
    ck_assert_int_eq(json_parse(refused[_i].text, count, "dir/x.json", &value), GT_DATA);
    ck_assert_ptr_eq(value, untouched);
    ck_assert_ptr_nonnull(strstr(capture.text, "dir/x.json: line "));
    log_capture_one_error(&capture, refused[_i].words);
}

/* A file of a hundred thousand brackets must not exhaust the stack. */
TEST(parse_refuses_depth)
{
    enum { DEPTH = 100000 };
    static char text[DEPTH];
    memset(text, '[', sizeof text);
    struct log_capture capture;
    log_capture_begin(&capture);
    json_t *value = NULL;
    log_capture_refused(&capture, json_parse(text, sizeof text, "deep.json", &value), GT_DATA,
                        "deep.json");
}

static const char sample[] =
    "{\"int\": 12, \"low\": -9223372036854775808, \"real\": 0.5, \"text\": \"hi\", \"yes\": true, "
    "\"no\": false, \"none\": null, \"list\": [1], \"object\": {\"inner\": 3}}";

static const struct {
    char getter; /* first letter of the type asked for */
    const char *name;
    const char *line;
} mismatches[] = {
    {'i', "text", "a/b.json: field \"text\": expected integer in [-5, 10], found string"},
    {'i', "int", "a/b.json: field \"int\": expected integer in [-5, 10], found 12"},
    {'i', "low",
     "a/b.json: field \"low\": expected integer in [-5, 10], found -9223372036854775808"},
    {'i', "real", "a/b.json: field \"real\": expected integer in [-5, 10], found real"},
    {'i', "absent", "a/b.json: field \"absent\": expected integer in [-5, 10], but it is missing"},
    {'r', "text", "a/b.json: field \"text\": expected number, found string"},
    {'r', "yes", "a/b.json: field \"yes\": expected number, found boolean"},
    {'r', "absent", "a/b.json: field \"absent\": expected number, but it is missing"},
    {'b', "int", "a/b.json: field \"int\": expected boolean, found integer"},
    {'b', "none", "a/b.json: field \"none\": expected boolean, found null"},
    {'s', "int", "a/b.json: field \"int\": expected string, found integer"},
    {'s', "absent", "a/b.json: field \"absent\": expected string, but it is missing"},
    {'o', "list", "a/b.json: field \"list\": expected object, found array"},
    {'o', "absent", "a/b.json: field \"absent\": expected object, but it is missing"},
};

static enum gt_status get_any(const json_t *root, char getter, const char *name)
{
    static const char *const same_text = "same";
    static const json_t *const same_object = NULL;
    int64_t integer = 77;
    double real = 77.0;
    bool flag = true;
    const char *text = same_text;
    const json_t *object = same_object;
    enum gt_status status = GT_FAILURE;
    switch (getter) {
    case 'i':
        status = json_get_int(root, "a/b.json", name, -5, 10, &integer);
        break;
    case 'r':
        status = json_get_real(root, "a/b.json", name, &real);
        break;
    case 'b':
        status = json_get_bool(root, "a/b.json", name, &flag);
        break;
    case 's':
        status = json_get_string(root, "a/b.json", name, &text);
        break;
    default:
        status = json_get_object(root, "a/b.json", name, &object);
        break;
    }
    ck_assert_msg(integer == 77 && real == 77.0 && flag && text == same_text &&
                      object == same_object,
                  "an output was written on failure");
    return status;
}

TEST_LOOP(getters_name_what_is_wrong, (int)(sizeof mismatches / sizeof mismatches[0]))
{
    json_t *root = parsed(sample);
    struct log_capture capture;
    log_capture_begin(&capture);
    ck_assert_int_eq(get_any(root, mismatches[_i].getter, mismatches[_i].name), GT_DATA);
    char line[300];
    (void)snprintf(line, sizeof line, "error: %s", mismatches[_i].line);
    ck_assert_str_eq(capture.text, line);
    log_capture_one_error(&capture, "a/b.json");
    /* The same field in a value that is not an object. */
    log_capture_refused(
        &capture,
        get_any(json_object_get(root, "list"), mismatches[_i].getter, mismatches[_i].name), GT_DATA,
        "expected inside an object, found array");
    log_capture_refused(&capture, get_any(NULL, mismatches[_i].getter, mismatches[_i].name),
                        GT_DATA, "found nothing");
    json_decref(root);
}

TEST(values_are_shown_as_short_texts)
{
    static const struct {
        const char *json, *text;
    } cases[] = {{"[true]", "true"},
                 {"[null]", "null"},
                 {"[0.5]", "0.5"},
                 {"[\"a\\nb\"]", "\"a\\nb\""},
                 {"[[1,2]]", "[...]"},
                 {"[{\"a\":1}]", "{...}"},
                 {"[\"0123456789012345678901234567890123456789012345678901234567890123456789\"]",
                  "\"0123456789012345678901234567890123456789...\""}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        json_t *root = parsed(cases[i].json);
        ck_assert_str_eq(JSON_SHORT_TEXT(json_array_get(root, 0)), cases[i].text);
        json_decref(root);
    }
}

TEST(files_are_written_and_read_again)
{
    char folder[FILE_PATH_MAX], path[FILE_PATH_MAX], bad[FILE_PATH_MAX];
    scratch_make(folder);
    file_join(path, folder, "a.json");
    file_join(bad, folder, "none/a.json");
    json_t *root = parsed(sample);
    ck_assert_int_eq(json_replace_file(path, root, 1), GT_OK);
    json_t *again = NULL;
    ck_assert_int_eq(json_parse_file(path, 1000, &again), GT_OK);
    ck_assert(json_equal(again, root));
    json_decref(again);
    char *text;
    size_t count;
    ck_assert_int_eq(file_read_all(path, 1000, &text, &count), GT_OK);
    ck_assert(count > 2 && text[count - 1] == '\n' && text[count - 2] == '}');
    free(text);
    struct log_capture capture;
    log_capture_begin(&capture);
    log_capture_refused(&capture, json_parse_file(path, 20, &again), GT_DATA, "at most 20");
    log_capture_refused(&capture, json_parse_file(bad, 20, &again), GT_IO, "none/a.json");
    log_capture_refused(&capture, json_replace_file(bad, root, 1), GT_IO, "none");
    json_decref(root);
    scratch_remove(folder);
}
