/* Tests of src/data/records.c: elements of JSON lists and rows of tables, in pieces of every size.
 */
#include "data/records.h"

#include "tests/unit/unit_main.h"

/* Cuts a text into records, read in pieces of `piece` bytes; joins them with '|', and a fault after
 * '!'. */
static void cut(enum record_form form, const char *text, size_t piece, char out[static 512])
{
    struct record_scan scan = {.form = form};
    const size_t count = strlen(text);
    size_t begin = 0, length = 0;
    const char *fault = NULL;
    while (begin <= count) {
        size_t at = begin, used = 0;
        bool ends = false;
        record_scan_begin(&scan);
        while (!ends && fault == NULL && at < count) {
            const size_t left = count - at < piece ? count - at : piece;
            ends = record_scan_run(&scan, text + at, left, &used, &fault);
            at += used;
        }
        if (!ends && fault == NULL)
            fault = record_scan_end(&scan);
        if (fault != NULL)
            length += (size_t)sprintf(out + length, "!%s", fault);
        else if (scan.begun)
            length += (size_t)sprintf(out + length, "%.*s|", (int)(at - begin - scan.start),
                                      text + begin + scan.start);
        if (!scan.begun || fault != NULL || at == begin)
            break;
        begin = at;
    }
    out[length] = '\0';
}

TEST(records_in_pieces_of_every_size)
{
    static const struct {
        enum record_form form;
        const char *text, *wanted;
    } texts[] = {
        {RECORD_LIST, "[{\"a\":1},\n {\"b\":[\"]}\",\"\\\"\"]} ]\n",
         "{\"a\":1}|{\"b\":[\"]}\",\"\\\"\"]}|"},
        {RECORD_LIST, " [1, \"x,]\\\\\" ,null]", "1|\"x,]\\\\\"|null|"},
        {RECORD_LIST, "[]", ""},
        {RECORD_LIST, "[{}", "{}|!the list is not closed: the file is cut short"},
        {RECORD_LIST, "[{\"a\":", "!the list is not closed: the file is cut short"},
        {RECORD_LIST, "[{} {}]", "{}|!expected a comma or ] after an element of the list"},
        {RECORD_LIST, "[{}] 7", "{}|!expected nothing after the list"},
        {RECORD_LIST, "", "!the list is not closed: the file is cut short"},
        {RECORD_CSV, "a,b\n\"x\ny\",2\n3,\"\"\"\"", "a,b\n|\"x\ny\",2\n|3,\"\"\"\"|"},
        {RECORD_CSV, "a,b\n\"x,2\n3,4\n",
         "a,b\n|!a quote opens here and the file ends before it is closed"},
        {RECORD_CSV, "a\tb\n5\" pipe\tx\n6\" pipe\t\"y\nz\"\n",
         "a\tb\n|5\" pipe\tx\n|6\" pipe\t\"y\nz\"\n|"},
        {RECORD_CSV, "", ""},
    };
    char out[512];
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        for (size_t piece = 1; piece <= 40; piece++) {
            cut(texts[i].form, texts[i].text, piece, out);
            ck_assert_msg(strcmp(out, texts[i].wanted) == 0, "%s, %zu: %s", texts[i].text, piece,
                          out);
        }
    ck_assert_int_eq(record_form_of("a.csv", "[", 1), RECORD_CSV);
    ck_assert_int_eq(record_form_of("a.json", " \n[", 3), RECORD_LIST);
    ck_assert_int_eq(record_form_of("a.json", "{", 1), RECORD_LINES);
    ck_assert_int_eq(record_form_of("a", " [{\"role\": \"user\"", 16), RECORD_LINES);
    ck_assert_int_eq(record_form_of("a", "[ {\n \"value\":", 15), RECORD_LINES);
    ck_assert_int_eq(record_form_of("a", "[{\"messages\"", 12), RECORD_LIST);
    ck_assert_int_eq(record_form_of("a", "[[{\"role\": \"user\"", 17), RECORD_LIST);
    ck_assert_int_eq(record_form_of("a", "[{\"rol", 6), RECORD_LIST);
}

TEST(rows_become_objects)
{
    static const struct {
        const char *names, *row, *wanted;
    } rows[] = {
        {"a,b\r\n", "1,\"x \"\"y\"\"\nz\"\r\n", "{\"a\":\"1\",\"b\":\"x \\\"y\\\"\\nz\"}"},
        {"a\tb\n", "1,\t\n", "{\"a\":\"1,\",\"b\":\"\"}"},
        {"a;b\n", "1;2", "{\"a\":\"1\",\"b\":\"2\"}"},
        {"a, or b\tc\n", "1\t2", "{\"a, or b\":\"1\",\"c\":\"2\"}"},
        {"a, or b;c;d\n", "1;2;3", "{\"a, or b\":\"1\",\"c\":\"2\",\"d\":\"3\"}"},
        {"a,b\n", "5\" pipe,1", "{\"a\":\"5\\\" pipe\",\"b\":\"1\"}"},
        {"a\n", "[1]\n", "{\"a\":\"[1]\"}"},
        {"a,b\n", "1\n", "!a different number of fields than the first row"},
        {"a,b\n", "1,\"x\"y\n",
         "!a quote inside a field that is not quoted, or a quoted field that goes on after its quote"},
        {"a\n", "\xff\n", "!not valid UTF-8"},
        {"a,a\n", "", "?two columns have one name"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct record_columns columns = {.names = NULL};
        const char *reason = NULL, *wanted = rows[i].wanted;
        json_t *row = NULL;
        enum gt_status status =
            record_columns_read(&columns, rows[i].names, strlen(rows[i].names), &reason);
        ck_assert_int_eq(status, wanted[0] == '?' ? GT_DATA : GT_OK);
        if (status == GT_OK)
            status = record_row_read(&columns, rows[i].row, strlen(rows[i].row), &row, &reason);
        ck_assert_int_eq(status, wanted[0] == '{' ? GT_OK : GT_DATA);
        char *text = status == GT_OK ? json_dumps(row, JSON_COMPACT) : NULL;
        ck_assert_str_eq(status == GT_OK ? text : reason, status == GT_OK ? wanted : wanted + 1);
        free(text);
        json_decref(row);
        json_decref(columns.names);
    }
}

TEST(texts_that_are_lists_of_messages)
{
    json_t *record = json_pack("{s:s, s:s, s:s, s:i}", "messages", " [{\"role\":\"user\"}]",
                               "completion", "[{\"city\":\"Oslo\"}]", "text", "[1", "n", 7);
    ck_assert_int_eq(record_lists_parse(record), GT_OK);
    char *text = json_dumps(record, JSON_COMPACT | JSON_SORT_KEYS);
    ck_assert_str_eq(text,
                     "{\"completion\":\"[{\\\"city\\\":\\\"Oslo\\\"}]\",\"messages\":[{\"role\":"
                     "\"user\"}],\"n\":7,\"text\":\"[1\"}");
    free(text);
    json_decref(record);
}
