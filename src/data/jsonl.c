/* A line of JSONL, parsed with jansson.
 *
 * jansson checks the syntax, UTF-8 and duplicate keys, and bounds the depth.  Other fields are parsed and ignored.  The
 * caller decides what to do about a bad line, and adds the file and the line to the message.
 */
#include "data/jsonl.h"

bool jsonl_line_is_blank(const char *line, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (memchr(" \t\r\n", line[i], 4) == NULL)
            return false;
    return true;
}

static const char *type_text(const json_t *value)
{
    static const char *const texts[] = {
        [JSON_OBJECT] = "an object", [JSON_ARRAY] = "a list",   [JSON_STRING] = "a string", [JSON_INTEGER] = "a number",
        [JSON_REAL] = "a number",    [JSON_TRUE] = "a boolean", [JSON_FALSE] = "a boolean", [JSON_NULL] = "null"};
    return texts[json_typeof(value)];
}

/* Lists the fields of the line, as many as fit. */
static void reason_missing(json_t *root, const char *field, char reason[static JSONL_REASON_BYTES])
{
    const char *key = NULL;
    json_t *value = NULL;
    char names[JSONL_REASON_BYTES / 2] = "";
    size_t used = 0;
    json_object_foreach(root, key, value)
    {
        const int more = snprintf(names + used, sizeof names - used, "%s%s", used > 0 ? ", " : "", key);
        used += (size_t)more;
        if (used >= sizeof names)
            break;
    }
    snprintf(reason, JSONL_REASON_BYTES,
             "field \"%.60s\" is missing; the line has %s: choose one with --field=NAME, or take whole lines with "
             "--format=text",
             field, used > 0 ? names : "none");
}

/* Returns the field's value, a string or a list, or NULL with the reason. */
static const json_t *root_field(json_t *root, const char *field, json_type type, char reason[static JSONL_REASON_BYTES])
{
    if (!json_is_object(root)) {
        snprintf(reason, JSONL_REASON_BYTES, "expected an object, found %s", type_text(root));
        return NULL;
    }
    const json_t *value = json_object_get(root, field);
    if (value == NULL)
        reason_missing(root, field, reason);
    else if (json_typeof(value) != type)
        snprintf(reason, JSONL_REASON_BYTES, "field \"%.100s\": expected %s, found %s", field,
                 type == JSON_STRING ? "a string" : "a list", type_text(value));
    return value != NULL && json_typeof(value) == type ? value : NULL;
}

enum gt_status jsonl_line_value(const char *line, size_t count, const char *field, json_type type, json_t **out_root,
                                const json_t **out_value, char reason[static JSONL_REASON_BYTES])
{
    json_error_t error;
    json_t *root = NULL;
    const size_t flags = JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | JSON_DECODE_ANY;
    const enum gt_status status = json_load(line, count, flags, &error, &root);
    if (status == GT_DATA)
        snprintf(reason, JSONL_REASON_BYTES, "column %d: not valid JSON: %s", error.column, error.text);
    if (status != GT_OK)
        return status;
    const json_t *value = root_field(root, field, type, reason);
    if (value == NULL) {
        json_decref(root);
        return GT_DATA;
    }
    *out_root = root;
    *out_value = value;
    return GT_OK;
}
