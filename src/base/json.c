/* JSON: getters around jansson that name the file and the field.
 *
 * jansson does the strict parsing (no duplicate keys, no text after the value, no integer outside
 * 64 bits, valid UTF-8 only), and its depth limit bounds its recursion.  A getter logs one line on
 * failure and leaves its output unchanged. There is no getter for arrays; callers walk them with
 * jansson's own functions.
 */
#include "base/json.h"

/* jansson's allocator is process-wide and takes no context, so this state cannot be in a struct. */
static json_malloc_t allocate;
static _Thread_local bool allocation_failed;

static void *allocate_watched(size_t size)
{
    void *memory = allocate(size);
    allocation_failed = allocation_failed || memory == NULL;
    return memory;
}

/* When memory runs out, jansson 2.14 drops characters from a buffer that cannot grow, and reports
 * other failed allocations as syntax errors. */
enum gt_status json_load(const char *text, size_t count, size_t flags, json_error_t *error,
                         json_t **out)
{
    json_malloc_t current;
    json_free_t release;
    json_get_alloc_funcs(&current, &release);
    if (current != allocate_watched) {
        allocate = current;
        json_set_alloc_funcs(allocate_watched, release);
    }
    allocation_failed = false;
    json_t *value = json_loadb(text, count, flags, error);
    if (allocation_failed) {
        json_decref(value);
        return FAIL(GT_NO_MEMORY, "out of memory for %zu bytes of JSON", count);
    }
    if (value != NULL)
        *out = value;
    return value != NULL ? GT_OK : GT_DATA;
}

enum gt_status json_parse(const char *text, size_t count, const char *source, json_t **out)
{
    json_error_t error;
    const enum gt_status status = json_load(text, count, JSON_REJECT_DUPLICATES, &error, out);
    if (status == GT_DATA && count > strlen(FILE_LFS_HEAD) &&
        memcmp(text, FILE_LFS_HEAD, strlen(FILE_LFS_HEAD)) == 0)
        log_error("%s: " FILE_LFS_ADVICE, source);
    else if (status == GT_DATA)
        log_error("%s: line %d, column %d: not valid JSON: %s", source, error.line, error.column,
                  error.text);
    return status;
}

enum gt_status json_parse_file(const char *path, size_t limit, json_t **out)
{
    char *text;
    size_t count;
    TRY(file_read_all(path, limit, &text, &count));
    enum gt_status status = json_parse(text, count, path, out);
    free(text);
    return status;
}

enum gt_status json_parse_optional(const char *path, size_t limit, json_error_t *error,
                                   json_t **out)
{
    char *text;
    size_t count;
    *out = NULL;
    error->text[0] = '\0';
    if (!file_exists(path))
        return GT_OK;
    TRY(file_read_all(path, limit, &text, &count));
    const enum gt_status status = json_load(text, count, 0, error, out);
    free(text);
    return status == GT_DATA ? GT_OK : status;
}

static const char *type_name(const json_t *value)
{
    static const char *const names[] = {
        [JSON_OBJECT] = "object",   [JSON_ARRAY] = "array", [JSON_STRING] = "string",
        [JSON_INTEGER] = "integer", [JSON_REAL] = "real",   [JSON_TRUE] = "boolean",
        [JSON_FALSE] = "boolean",   [JSON_NULL] = "null"};
    return names[json_typeof(value)];
}

#define TYPE(type) (1u << JSON_##type)

/* Returns the member `name` if it has one of `types`.  Otherwise logs an error line with `expected`
 * and returns NULL. */
static const json_t *member(const json_t *object, const char *source, const char *name,
                            unsigned types, const char *expected)
{
    if (!json_is_object(object))
        return FAIL(NULL, "%s: field \"%s\": expected inside an object, found %s", source, name,
                    object != NULL ? type_name(object) : "nothing");
    const json_t *value = json_object_get(object, name);
    if (value != NULL && (types >> json_typeof(value) & 1u) != 0)
        return value;
    return FAIL(NULL, "%s: field \"%s\": expected %s, %s%s", source, name, expected,
                value != NULL ? "found " : "but it is missing",
                value != NULL ? type_name(value) : "");
}

enum gt_status json_get_int(const json_t *object, const char *source, const char *name, int64_t min,
                            int64_t max, int64_t *out)
{
    assert(min <= max);
    char expected[80];
    (void)snprintf(expected, sizeof expected, "integer in [%" PRId64 ", %" PRId64 "]", min, max);
    const json_t *value = member(object, source, name, TYPE(INTEGER), expected);
    if (value == NULL)
        return GT_DATA;
    const int64_t number = (int64_t)json_integer_value(value);
    if (number < min || number > max)
        return FAIL(GT_DATA, "%s: field \"%s\": expected %s, found %" PRId64, source, name,
                    expected, number);
    *out = number;
    return GT_OK;
}

#define GETTER(name_of_type, ctype, types, expected, value_of)                       \
    enum gt_status json_get_##name_of_type(const json_t *object, const char *source, \
                                           const char *name, ctype *out)             \
    {                                                                                \
        const json_t *value = member(object, source, name, types, expected);         \
        if (value == NULL)                                                           \
            return GT_DATA;                                                          \
        *out = value_of(value);                                                      \
        return GT_OK;                                                                \
    }
GETTER(real, double, TYPE(REAL) | TYPE(INTEGER), "number", json_number_value)
GETTER(bool, bool, TYPE(TRUE) | TYPE(FALSE), "boolean", json_is_true)
GETTER(string, const char *, TYPE(STRING), "string", json_string_value)
GETTER(object, const json_t *, TYPE(OBJECT), "object", )

json_t *json_whole(json_t *value, int failures)
{
    if (failures == 0)
        return value;
    json_decref(value);
    return NULL;
}

/* The stream records a failed write, because jansson up to 2.14 continues after a key that it could
 * not write, and json_dumps() returns the text without that key (jansson issue 655). */
enum gt_status json_text(const json_t *value, int indent, const char *end, char **out)
{
    assert(indent >= 0 && indent <= JSON_MAX_INDENT);
    char *text = NULL;
    size_t count;
    FILE *stream = open_memstream(&text, &count);
    bool failed =
        stream == NULL ||
        json_dumpf(value, stream,
                   JSON_INDENT((size_t)indent) | JSON_REAL_PRECISION(17) | JSON_ENCODE_ANY) != 0 ||
        fputs(end, stream) < 0;
    failed = failed || ferror(stream) != 0;
    if ((stream == NULL || fclose(stream) == 0) && !failed) {
        *out = text;
        return GT_OK;
    }
    free(text);
    return FAIL(GT_NO_MEMORY, "out of memory: a JSON text could not be made");
}

char *json_short_text(char text[static JSON_SHORT_BYTES], const json_t *value)
{
    static const char more[] = "...";
    char whole[JSON_SHORT_BYTES] = "";
    const bool scalar = !json_is_array(value) && !json_is_object(value);
    const size_t count = scalar ? json_dumpb(value, whole, sizeof whole - 1, JSON_ENCODE_ANY) : 0;
    if (scalar && count < sizeof whole)
        (void)snprintf(text, JSON_SHORT_BYTES, "%s", whole);
    else if (json_is_string(value))
        (void)snprintf(text, JSON_SHORT_BYTES, "\"%.40s%s\"", json_string_value(value), more);
    else
        (void)snprintf(text, JSON_SHORT_BYTES, "%c%s%c", json_is_array(value) ? '[' : '{', more,
                       json_is_array(value) ? ']' : '}');
    return text;
}

enum gt_status json_replace_file_keep_mode(const char *path, const json_t *value, int indent,
                                           const mode_t *mode, bool *out_in_place)
{
    char *text;
    TRY(json_text(value, indent, "\n", &text));
    struct file_replacement file;
    enum gt_status status = file_replacement_begin(&file, path, mode);
    THEN(status, file_replacement_end(&file, file_replacement_write(&file, text, strlen(text))));
    *out_in_place = file.in_place;
    free(text);
    return status;
}

enum gt_status json_replace_file(const char *path, const json_t *value, int indent)
{
    bool in_place;
    return json_replace_file_keep_mode(path, value, indent, NULL, &in_place);
}
