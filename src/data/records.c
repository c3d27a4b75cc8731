/* Finds where records begin and end, and reads the rows of CSV files.
 *
 * Elements of a list are found by counting brackets outside texts; jansson then reads each by
 * itself.  Rows are read as Python's csv module reads them: two quotes in a quoted field are one,
 * and line ends in it stay as they are.
 */
#include "data/records.h"

#define SPACES " \t\r\n"

static bool name_ends(const char *name, const char *ending)
{
    const size_t count = strlen(name), length = strlen(ending);
    return count > length && strcmp(name + count - length, ending) == 0;
}

/* Returns true if a list begins with a message: it is one conversation, as each line of nanochat's
 * files is, and not a list of them. */
static bool begins_message(const char *bytes, size_t count)
{
    static const char *const names[] = {"\"role\"", "\"content\"", "\"from\"", "\"value\""};
    size_t at = 0;
    for (const char *sign = "[{"; *sign != '\0'; sign++) {
        if (at == count || bytes[at] != *sign)
            return false;
        for (at++; at < count && memchr(SPACES, bytes[at], 4) != NULL;)
            at++;
    }
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (count - at > strlen(names[i]) && memcmp(bytes + at, names[i], strlen(names[i])) == 0)
            return true;
    return false;
}

enum record_form record_form_of(const char *name, const char *bytes, size_t count)
{
    size_t at = 0;
    if (name_ends(name, ".csv") || name_ends(name, ".tsv"))
        return RECORD_CSV;
    while (at < count && memchr(SPACES, bytes[at], 4) != NULL)
        at++;
    const bool is_list = at < count && bytes[at] == '[';
    return is_list && !begins_message(bytes + at, count - at) ? RECORD_LIST : RECORD_LINES;
}

/* ---- a list ---- */

/* Consumes a byte between two elements.  Returns true unless it begins one. */
static bool between_scan(struct record_scan *scan, char byte, const char **out_fault)
{
    if (memchr(SPACES, byte, 4) != NULL)
        return true;
    if (scan->closed)
        *out_fault = "expected nothing after the list";
    else if (!scan->opened && byte == '[')
        scan->opened = true;
    else if (scan->wants_comma && byte == ',')
        scan->wants_comma = false;
    else if (byte == ']')
        scan->closed = true;
    else if (scan->wants_comma)
        *out_fault = "expected a comma or ] after an element of the list";
    else
        return false;
    return true;
}

/* Consumes a byte of an element.  Returns true when it is the last one. */
static bool element_scan(struct record_scan *scan, char byte)
{
    const bool was_text = scan->in_text;
    if (scan->in_text) {
        scan->in_text = scan->escaped || byte != '"';
        scan->escaped = !scan->escaped && byte == '\\';
    } else if (byte == '"') {
        scan->in_text = true;
    } else if (byte == '{' || byte == '[') {
        scan->depth++;
    } else if (byte == '}' || byte == ']') {
        scan->depth--;
    }
    return scan->depth == 0 && !scan->in_text && (was_text || byte == '}' || byte == ']');
}

static bool list_run(struct record_scan *scan, const char *bytes, size_t count, size_t *out_used,
                     const char **out_fault)
{
    size_t at = 0;
    for (; at < count && *out_fault == NULL; at++) {
        if (!scan->begun && between_scan(scan, bytes[at], out_fault))
            continue;
        scan->start += scan->begun ? 0 : at;
        scan->in_scalar = (!scan->begun && memchr("{[\"", bytes[at], 3) == NULL) || scan->in_scalar;
        scan->begun = true;
        if (scan->in_scalar &&
            (memchr(SPACES, bytes[at], 4) != NULL || bytes[at] == ',' || bytes[at] == ']')) {
            *out_used = at;
            return true;
        }
        if (!scan->in_scalar && element_scan(scan, bytes[at])) {
            *out_used = at + 1;
            return true;
        }
    }
    scan->start += scan->begun ? 0 : count;
    *out_used = at;
    return false;
}

/* ---- all forms ---- */

void record_scan_begin(struct record_scan *scan)
{
    scan->wants_comma = scan->begun;
    scan->begun = scan->in_text = scan->escaped = scan->in_scalar = false;
    scan->depth = 0;
    scan->start = 0;
    scan->previous = '\0';
}

/* Returns true for a quote that opens or closes a field: any in a quoted one, and only the first
 * byte of another. */
static bool quote_turns(const struct record_scan *scan, char byte)
{
    return scan->form == RECORD_CSV && byte == '"' &&
           (scan->in_text || scan->previous == '\0' || strchr(",;\t\"", scan->previous) != NULL);
}

bool record_scan_run(struct record_scan *scan, const char *bytes, size_t count, size_t *out_used,
                     const char **out_fault)
{
    if (scan->form == RECORD_LIST)
        return list_run(scan, bytes, count, out_used, out_fault);
    scan->begun = scan->begun || count > 0;
    for (size_t at = 0; at < count; at++) {
        scan->in_text = scan->in_text != quote_turns(scan, bytes[at]);
        scan->previous = bytes[at];
        if (bytes[at] == '\n' && !scan->in_text) {
            *out_used = at + 1;
            return true;
        }
    }
    *out_used = count;
    return false;
}

const char *record_scan_end(const struct record_scan *scan)
{
    if (scan->form == RECORD_CSV)
        return scan->in_text ? "a quote opens here and the file ends before it is closed" : NULL;
    return scan->form == RECORD_LIST && !scan->closed
               ? "the list is not closed: the file is cut short"
               : NULL;
}

/* ---- rows ---- */

/* Reads the next field at row[*at] into `out`, which has room for the row.  Returns false when its
 * quotes are wrong. */
static bool field_read(char separator, const char *row, size_t count, size_t *at, char *out,
                       size_t *out_count)
{
    bool quoted = *at < count && row[*at] == '"';
    size_t length = 0;
    *at += quoted;
    while (*at < count && (quoted || row[*at] != separator)) {
        const bool is_quote = row[*at] == '"';
        const bool is_pair = is_quote && *at + 1 < count && row[*at + 1] == '"';
        if (quoted && is_quote && !is_pair) {
            quoted = false;
            if (*at + 1 < count && row[*at + 1] != separator)
                return false;
        } else {
            out[length++] = row[*at];
            *at += quoted && is_pair;
        }
        ++*at;
    }
    *out_count = length;
    return !quoted;
}

/* Returns the row as a list of texts, or NULL with the reason; a NULL without a reason means out of
 * memory. */
static json_t *fields_read(char separator, const char *row, size_t count, const char **reason)
{
    json_t *list = json_array();
    char *field = malloc(count + 1);
    size_t at = 0, length = 0;
    bool more = list != NULL && field != NULL;
    while (more && *reason == NULL) {
        const bool good = field_read(separator, row, count, &at, field, &length);
        json_t *text = good ? json_stringn(field, length) : NULL;
        if (!good)
            *reason =
                "a quote inside a field that is not quoted, or a quoted field that goes on after its quote";
        else if (text == NULL)
            *reason = "not valid UTF-8";
        else if (json_array_append_new(list, text) != 0)
            more = false;
        more = more && at < count;
        if (more)
            at++;
        if (more && at == count &&
            *reason == NULL) /* a separator at the end: one empty field more */
            more = json_array_append_new(list, json_string("")) != 0;
    }
    free(field);
    if (*reason == NULL && list != NULL && json_array_size(list) > 0)
        return list;
    json_decref(list);
    return NULL;
}

static size_t without_line_end(const char *row, size_t count)
{
    count -= count > 0 && row[count - 1] == '\n';
    count -= count > 0 && row[count - 1] == '\r';
    return count;
}

enum gt_status record_columns_read(struct record_columns *columns, const char *row, size_t count,
                                   const char **reason)
{
    count = without_line_end(row, count);
    size_t semicolons = 0, commas = 0;
    for (size_t at = 0; at < count; at++) {
        semicolons += row[at] == ';';
        commas += row[at] == ',';
    }
    columns->separator = memchr(row, '\t', count) != NULL ? '\t' : semicolons > commas ? ';' : ',';
    json_t *names = fields_read(columns->separator, row, count, reason);
    for (size_t i = 0; i < json_array_size(names) && *reason == NULL; i++)
        for (size_t k = 0; k < i && *reason == NULL; k++)
            if (json_equal(json_array_get(names, i), json_array_get(names, k)))
                *reason = "two columns have one name";
    if (*reason == NULL && json_array_size(names) > RECORD_FIELDS_MAX)
        *reason = "more than 1024 columns";
    if (*reason == NULL && names == NULL)
        return FAIL(GT_NO_MEMORY, "out of memory for the columns of a file");
    if (*reason == NULL) {
        columns->names = names;
        return GT_OK;
    }
    json_decref(names);
    return GT_DATA;
}

enum gt_status record_row_read(const struct record_columns *columns, const char *row, size_t count,
                               json_t **out, const char **reason)
{
    json_t *fields = fields_read(columns->separator, row, without_line_end(row, count), reason);
    json_t *object = json_object();
    int failures = fields == NULL;
    if (fields != NULL && json_array_size(fields) != json_array_size(columns->names))
        *reason = "a different number of fields than the first row";
    for (size_t i = 0; i < json_array_size(fields) && *reason == NULL; i++)
        failures |=
            json_object_set_new(object, json_string_value(json_array_get(columns->names, i)),
                                json_incref(json_array_get(fields, i)));
    json_decref(fields);
    object = json_whole(object, failures || *reason != NULL);
    if (*reason != NULL)
        return GT_DATA;
    if (object == NULL)
        return FAIL(GT_NO_MEMORY, "out of memory for a row");
    *out = object;
    return GT_OK;
}

static bool is_messages(const json_t *list)
{
    const json_t *first = json_array_get(list, 0);
    return json_is_string(json_object_get(first, "role")) ||
           json_is_string(json_object_get(first, "from"));
}

json_t *record_wrap(json_t *root)
{
    return is_messages(root) ? json_pack("{s:o}", "messages", root) : root;
}

/* Returns the list of messages that a text is in JSON, or NULL. */
static json_t *messages_of(const json_t *text)
{
    const char *bytes = json_string_value(text);
    json_t *list = bytes != NULL && bytes[strspn(bytes, SPACES)] == '['
                       ? json_loads(bytes, JSON_REJECT_DUPLICATES, NULL)
                       : NULL;
    if (is_messages(list))
        return list;
    json_decref(list);
    return NULL;
}

enum gt_status record_lists_parse(json_t *object)
{
    const char *name;
    void *next;
    json_t *text, *list;
    json_object_foreach_safe(object, next, name, text)
    {
        list = messages_of(text);
        if (list != NULL && json_object_set_new(object, name, list) != 0)
            return FAIL(GT_NO_MEMORY, "out of memory for a record");
    }
    return GT_OK;
}
