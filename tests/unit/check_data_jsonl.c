/* Tests of the lines of JSONL in src/data/documents.c: the text of a line, and the reason when a
 * line gives none. */
#include "data/documents.h"

#include <stdlib.h>
#include <string.h>

#include "tests/unit/log_capture.h"
#include "tests/unit/unit_main.h"

static void expect_text(const char *line, const char *field, const char *text, size_t count)
{
    json_t *found = NULL;
    char reason[JSONL_REASON_BYTES] = "";
    ck_assert_msg(jsonl_line_value(line, strlen(line), field, &found, reason) == GT_OK, "%s",
                  reason);
    ck_assert_uint_eq(json_string_length(found), count);
    ck_assert_int_eq(memcmp(json_string_value(found), text, count), 0);
    json_decref(found);
}

static void expect_reason(const char *line, size_t count, const char *says)
{
    json_t *found = NULL;
    char reason[JSONL_REASON_BYTES] = "";
    ck_assert_int_eq(jsonl_line_value(line, count, "text", &found, reason), GT_DATA);
    ck_assert_ptr_null(found);
    ck_assert_msg(strstr(reason, says) != NULL, "the reason: %s", reason);
}

TEST(jsonl_gives_the_field)
{
    expect_text("{\"text\":\"abc\"}", "text", "abc", 3);
    expect_text(" {\"id\": 7, \"text\" : \"\" , \"x\":[{}]}\r", "text", "", 0);
    expect_text("{\"a.b\":\"\\u00e4\\ud83d\\ude00\\n\"}", "a.b", "\xC3\xA4\xF0\x9F\x98\x80\n", 7);
    expect_text("{\"text\":\"a\\u0000b\"}", "text", "a\0b", 3);
}

TEST(jsonl_says_what_is_wrong)
{
    static const char *const bad[][2] = {
        {"", "not valid JSON"},
        {"{\"text\":\"abc\"", "not valid JSON"},
        {"{\"text\":\"abc\"} 1", "not valid JSON"},
        {"{\"text\":\"\\ud83d\"}", "not valid JSON"},
        {"{\"text\":\"a\",\"text\":\"b\"}", "duplicate"},
        {"{\"txt\":\"a\",\"id\":1}",
         "field \"text\" is missing; the line has txt, id: choose one with --field=NAME"},
        {"{}", "field \"text\" is missing; the line has none"},
        {"{\"text\":null}", "expected a string, found null"},
        {"{\"text\":true}", "expected a string, found a boolean"},
        {"{\"text\":1.5}", "expected a string, found a number"},
        {"{\"text\":[]}", "expected a string, found a list"},
        {"{\"text\":{}}", "expected a string, found an object"},
        {"\"text\"", "expected an object, found a string"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        expect_reason(bad[i][0], strlen(bad[i][0]), bad[i][1]);
    expect_reason("{\"text\":\"\xE9\"}", 12, "not valid JSON");
    expect_reason("{\"text\":\"a\0\"}", 13, "not valid JSON");
}

TEST(jsonl_blank_lines)
{
    ck_assert(jsonl_line_is_blank("", 0) && jsonl_line_is_blank(" \t\r", 3));
    ck_assert(!jsonl_line_is_blank(" {", 2) && !jsonl_line_is_blank("\0", 1));
}
