/* Reads a configuration that is a flat list of keys and values, in YAML or JSON, as other programs
 * use.
 *
 * Values are read as those of flags are: by the type of their key.  A list of scalars is their text
 * with commas between them; null leaves the default.  A nested value is refused once for each
 * top-level key; the message says what to write instead. libyaml splits YAML into events, and
 * jansson reads JSON. jansson does not report where a member is, so the reader searches the text
 * for its name.  After a mistake the reader continues, so that it reports all of them.
 */
#include <config.h>

#include "config/config_flat.h"

#include "base/json.h"
#include "config/config_file.h"
#include "config/config_key.h"
#include "config/config_names.h"
#include "config/config_value.h"
#ifdef HAVE_YAML
#include <yaml.h>
#endif

#define FLAT_BYTES_MAX 1048576
#define VALUE_BYTES_MAX 2048
#define NAME_BYTES_MAX 80

struct flat {
    struct config *config;
    const char *path;
    int errors;
    int32_t lines[CONFIG_KEY_COUNT]; /* on which the file sets a key */
};

/* A key at the top level, and its value so far. */
struct member {
    char name[NAME_BYTES_MAX];
    char inner[NAME_BYTES_MAX]; /* the first name within a nested value */
    char text[VALUE_BYTES_MAX];
    int items;
    bool is_null, nested;
    int32_t line, column;
};

static void member_add(struct member *member, const char *text)
{
    const size_t used = strlen(member->text);
    snprintf(member->text + used, sizeof member->text - used, "%s%s", member->items > 0 ? "," : "",
             text);
    member->items++;
}

/* Refuses a nested value, unless its name has an answer. */
static enum gt_status nested_refuse(const struct flat *flat, const struct member *member,
                                    const struct config_other *other,
                                    const struct config_origin *origin)
{
    const struct config_value on = {.type = CONFIG_VALUE_BOOL, .integer = 1};
    if (other != NULL && (other->kind == CONFIG_OTHER_NEEDLESS ||
                          other->kind == CONFIG_OTHER_FIXED || other->kind == CONFIG_OTHER_LACKING))
        return config_other_set(flat->config, other, &on, origin);
    return FAIL(
        GT_USAGE,
        "%s: %s is nested, and a configuration here is a flat list; write the keys that matter at the top "
        "level, as in %s: VALUE (doc/finetune.md has the names)",
        CONFIG_ORIGIN_TEXT(origin), member->name,
        member->inner[0] != '\0' ? member->inner : "learning_rate");
}

static enum gt_status member_assign(struct flat *flat, const struct member *member)
{
    const enum config_program program = flat->config->program;
    const struct config_origin origin = {
        .source = flat->path, .line = member->line, .column = member->column};
    const struct config_other *other =
        config_other_find(member->name, strlen(member->name), CONFIG_BOTH);
    enum config_key key = config_key_find(member->name, strlen(member->name));
    char hint[CONFIG_HINT_MAX];
    if (key == CONFIG_KEY_COUNT && other != NULL && other->kind == CONFIG_OTHER_SAME)
        key = other->key;
    const bool ours = key != CONFIG_KEY_COUNT,
               unknown = !ours && (other == NULL || other->kind == CONFIG_OTHER_HINT);
    if (unknown && config_name_is_wandb(member->name, strlen(member->name)))
        return GT_OK;
    if (member->nested)
        return nested_refuse(flat, member, ours ? NULL : other, &origin);
    if (unknown)
        return FAIL(GT_USAGE, ERROR_UNKNOWN_KEY "%s: unknown key %s%s", CONFIG_ORIGIN_TEXT(&origin),
                    member->name,
                    config_key_hint(hint, member->name, strlen(member->name), program));
    if (member->is_null ||
        ((ours ? config_key_info_get(key)->programs : other->programs) & (unsigned)program) == 0)
        return GT_OK; /* null keeps the default; a key of the other program may share the file */
    if (!ours && other->kind == CONFIG_OTHER_TRUE && config_boolean_word(member->text) != 0)
        flat->lines[other->key] = origin.line;
    if (!ours)
        return config_other_text_set(flat->config, other, member->text, &origin);
    if (flat->lines[key] > 0)
        log_warning("%s: %s replaces that of line %" PRId32, CONFIG_ORIGIN_TEXT(&origin),
                    member->name, flat->lines[key]);
    flat->lines[key] = origin.line;
    if ((config_key_info_get(key)->flags & CONFIG_FLAG_ONLY) != 0)
        return FAIL(GT_USAGE, "%s: %s belongs to the command line, not into a file",
                    CONFIG_ORIGIN_TEXT(&origin), config_key_info_get(key)->name);
    return config_text_assign(flat->config, key, member->text, &origin);
}

/* ---- JSON ---- */

/* Sets the position of a member to that of its name in the text. */
static void place_find(struct member *member, const char *text)
{
    const char *quoted = TEXT(NAME_BYTES_MAX + 2, "\"%s\"", member->name),
               *at = strstr(text, quoted);
    member->line = 1;
    const char *start = text;
    for (const char *end; at != NULL && (end = strchr(start, '\n')) != NULL && end < at;
         start = end + 1)
        member->line++;
    member->column = at != NULL ? (int32_t)(at - start) + 1 : 1;
}

/* Adds a scalar; returns false for anything else. */
static bool scalar_add(struct member *member, const json_t *value)
{
    if (json_is_string(value))
        member_add(member, json_string_value(value));
    else if (json_is_integer(value))
        member_add(member, TEXT(32, "%" PRId64, (int64_t)json_integer_value(value)));
    else if (json_is_real(value))
        member_add(member, CONFIG_REAL_TEXT(json_real_value(value)));
    else if (json_is_boolean(value))
        member_add(member, json_is_true(value) ? "True" : "False");
    else
        return false;
    return true;
}

static void member_from_json(struct member *member, const char *name, json_t *value)
{
    const char *inner =
        json_is_object(value) ? json_object_iter_key(json_object_iter(value)) : NULL;
    *member = (struct member){.is_null = json_is_null(value)};
    snprintf(member->name, sizeof member->name, "%s", name);
    snprintf(member->inner, sizeof member->inner, "%s", inner != NULL ? inner : "");
    for (size_t i = 0; i < json_array_size(value); i++)
        member->nested = !scalar_add(member, json_array_get(value, i)) || member->nested;
    if (!json_is_array(value) && !member->is_null)
        member->nested = !scalar_add(member, value);
}

static enum gt_status json_read(struct flat *flat, const char *text, size_t count)
{
    json_error_t error;
    json_t *root = NULL, *value;
    const char *name;
    if (json_load(text, count, 0, &error, &root) != GT_OK || !json_is_object(root)) {
        const bool read = root != NULL;
        json_decref(root);
        return FAIL(GT_USAGE, "%s:%d:%d: %s", flat->path, read ? 1 : error.line,
                    read ? 1 : error.column,
                    read ? "a configuration is an object of keys and values" : error.text);
    }
    json_object_foreach(root, name, value)
    {
        struct member member;
        member_from_json(&member, name, value);
        place_find(&member, text);
        flat->errors += member_assign(flat, &member) != GT_OK;
    }
    json_decref(root);
    return GT_OK;
}

/* ---- YAML ---- */

#ifdef HAVE_YAML
static bool is_null_text(const yaml_event_t *event)
{
    const char *text = (const char *)event->data.scalar.value;
    return event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE &&
           (text[0] == '\0' || strcmp(text, "null") == 0 || strcmp(text, "~") == 0 ||
            strcmp(text, "None") == 0);
}

/* Handles an event within the value of a member; `depth` counts the open lists and mappings, the
 * file's included. */
static void value_read(struct member *member, const yaml_event_t *event, int depth)
{
    const char *text =
        event->type == YAML_SCALAR_EVENT ? (const char *)event->data.scalar.value : "";
    const bool flat = event->type == YAML_SCALAR_EVENT && !member->nested && depth <= 2;
    if (event->type == YAML_MAPPING_START_EVENT || event->type == YAML_ALIAS_EVENT || depth > 2)
        member->nested = true;
    if (member->nested && event->type == YAML_SCALAR_EVENT && member->inner[0] == '\0')
        snprintf(member->inner, sizeof member->inner, "%.60s", text);
    if (flat && depth == 1 && is_null_text(event))
        member->is_null = true;
    else if (flat)
        member_add(member, text);
}

static void member_name_read(struct member *member, const yaml_event_t *event)
{
    *member = (struct member){.line = (int32_t)event->start_mark.line + 1,
                              .column = (int32_t)event->start_mark.column + 1};
    snprintf(member->name, sizeof member->name, "%s", (const char *)event->data.scalar.value);
}

/* Handles an event; *depth is 1 between the members of the file's mapping. */
static enum gt_status event_read(struct flat *flat, const yaml_event_t *event,
                                 struct member *member, int *depth, bool *named)
{
    const bool opens =
        event->type == YAML_MAPPING_START_EVENT || event->type == YAML_SEQUENCE_START_EVENT;
    const bool closes =
        event->type == YAML_MAPPING_END_EVENT || event->type == YAML_SEQUENCE_END_EVENT;
    const bool is_value = event->type == YAML_SCALAR_EVENT || event->type == YAML_ALIAS_EVENT;
    if (!opens && !closes && !is_value)
        return GT_OK;
    const bool is_list = *depth == 0 && event->type != YAML_MAPPING_START_EVENT;
    if (is_list || (*depth == 1 && !*named && !closes && event->type != YAML_SCALAR_EVENT))
        return FAIL(GT_USAGE,
                    "%s:%zu:%zu: a configuration is a list of keys and values: NAME: VALUE",
                    flat->path, event->start_mark.line + 1, event->start_mark.column + 1);
    if (*depth == 1 && !*named && !closes)
        member_name_read(member, event);
    else if (*depth > 0 && *named && !closes)
        value_read(member, event, *depth);
    const bool ends = *depth == 1 && *named && is_value;
    *depth += opens ? 1 : closes ? -1 : 0;
    if (*depth != 1 || opens)
        return GT_OK;
    if (ends || (closes && *named))
        flat->errors += member_assign(flat, member) != GT_OK;
    *named = !*named && !closes;
    return GT_OK;
}

static enum gt_status yaml_read(struct flat *flat, const char *text, size_t count)
{
    yaml_parser_t parser;
    yaml_event_t event;
    struct member member = {.line = 1};
    enum gt_status status = GT_OK;
    int depth = 0;
    bool named = false, more = true;
    if (yaml_parser_initialize(&parser) == 0)
        return FAIL(GT_NO_MEMORY, "%s: no memory to read it", flat->path);
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, count);
    while (more && status == GT_OK) {
        if (yaml_parser_parse(&parser, &event) == 0) {
            status = FAIL(GT_USAGE, "%s:%zu:%zu: %s", flat->path, parser.problem_mark.line + 1,
                          parser.problem_mark.column + 1,
                          parser.problem != NULL ? parser.problem : "not YAML");
            break;
        }
        more = event.type != YAML_STREAM_END_EVENT;
        status = event_read(flat, &event, &member, &depth, &named);
        yaml_event_delete(&event);
    }
    yaml_parser_delete(&parser);
    return status;
}
#else
static enum gt_status yaml_read(struct flat *flat, const char *text, size_t count)
{
    (void)text;
    (void)count;
    return FAIL(
        GT_USAGE,
        "%s: this build has no libyaml (Debian: libyaml-dev); write the keys as JSON in a file NAME.json, or as "
        "NAME = VALUE lines in NAME.py",
        flat->path);
}
#endif

/* ---- any file ---- */

static bool ends_with(const char *path, const char *end)
{
    const size_t length = strlen(path), tail = strlen(end);
    return length > tail && strcmp(path + length - tail, end) == 0;
}

enum gt_status config_read_file(struct config *config, const char *path)
{
    struct flat flat = {.config = config, .path = path};
    const bool json = ends_with(path, ".json");
    char *text;
    size_t count;
    if (ends_with(path, ".toml"))
        return FAIL(
            GT_USAGE,
            "%s: TOML is not supported; write its keys as NAME = VALUE lines in a file NAME.py",
            path);
    if (!config_path_is_flat(path))
        return config_parse_file(config, path);
    TRY(file_read_all(path, FLAT_BYTES_MAX, &text, &count));
    const enum gt_status status = (json ? json_read : yaml_read)(&flat, text, count);
    free(text);
    return status == GT_OK && flat.errors > 0 ? GT_USAGE : status;
}
