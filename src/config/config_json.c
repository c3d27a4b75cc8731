/* The configuration in a checkpoint: one flat JSON object of all keys that are not
 * CONFIG_INVOCATION.
 *
 * Reading treats the object as untrusted.  Every value passes the same type and range checks as a
 * flag.  An unknown key is an error, because it may change the meaning of the others.  Keys that
 * this invocation set keep their value, but nothing can change the shape of an existing model.
 */
#include "config/config_json.h"

#include "base/json.h"
#include "config/config_key.h"
#include "config/config_value.h"

_Static_assert(sizeof((struct config_change *)0)->was == CONFIG_VALUE_TEXT_MAX,
               "config_key_text() fills it");

static bool is_stored(const struct config_key_info *info)
{
    return (info->flags & CONFIG_INVOCATION) == 0 && (info->programs & CONFIG_TRAIN) != 0;
}

static json_t *json_from_value(const struct config_value *value)
{
    if (value->type == CONFIG_VALUE_STRING)
        return json_string(value->text);
    if (value->type == CONFIG_VALUE_REAL)
        return json_real(value->real);
    return value->type == CONFIG_VALUE_BOOL ? json_boolean(value->integer != 0)
                                            : json_integer(value->integer);
}

enum gt_status config_to_json(const struct config *config, json_t **out)
{
    json_t *object = json_object();
    bool complete = object != NULL;
    for (int key = 0; key < CONFIG_KEY_COUNT && complete; key++) {
        const struct config_key_info *info = config_key_info_get((enum config_key)key);
        struct config_value value = config_key_value(config, (enum config_key)key);
        if (is_stored(info))
            complete = json_object_set_new(object, info->name, json_from_value(&value)) == 0;
    }
    const enum gt_status status =
        complete ? GT_OK : FAIL(GT_NO_MEMORY, "no memory for the configuration as JSON");
    return FINISH(status, out, object, json_decref);
}

/* Returns false for an array, an object or null, which no key accepts. */
static bool value_from_json(const json_t *json, struct config_value *out)
{
    if (json_is_boolean(json))
        *out = (struct config_value){.type = CONFIG_VALUE_BOOL, .integer = json_is_true(json)};
    else if (json_is_integer(json))
        *out = (struct config_value){.type = CONFIG_VALUE_INT,
                                     .integer = (int64_t)json_integer_value(json)};
    else if (json_is_real(json))
        *out = (struct config_value){.type = CONFIG_VALUE_REAL, .real = json_real_value(json)};
    else if (json_is_string(json))
        *out = (struct config_value){.type = CONFIG_VALUE_STRING, .text = json_string_value(json)};
    else
        return false;
    return true;
}

/* Returns true if the key has its default, and that default leaves the choice to the checkpoint. */
static bool is_open(const struct config *config, enum config_key key)
{
    const struct config_key_info *info = config_key_info_get(key);
    struct config_value value = config_key_value(config, key);
    if ((info->flags & CONFIG_AUTO) == 0)
        return false;
    if (value.type == CONFIG_VALUE_STRING)
        return strcmp(value.text, info->words[0]) == 0;
    return value.type == CONFIG_VALUE_REAL ? value.real == 0.0 : value.integer == 0;
}

/* Assigns the checkpoint's value to `trial` and writes both values to `out`.  Returns false if it
 * is invalid. */
static bool change_read(const struct config *config, enum config_key key,
                        const struct config_value *value, const struct config_origin *origin,
                        struct config *trial, struct config_change *out)
{
    if (config_key_assign(trial, key, value, origin) != GT_OK)
        return false;
    out->name = config_key_info_get(key)->name;
    config_key_text(out->was, trial, key);
    config_key_text(out->is, config, key);
    return true;
}

/* For a key that this invocation set: checks that the checkpoint's value is valid, and, for a key
 * of the model's shape, equal.  `trial` is scratch. */
static enum gt_status keep_own(const struct config *config, enum config_key key,
                               const struct config_value *value, const struct config_origin *origin,
                               struct config *trial)
{
    struct config_change change;
    if (!change_read(config, key, value, origin, trial, &change))
        return GT_DATA;
    if ((config_key_info_get(key)->flags & CONFIG_FIXED) == 0 || is_open(trial, key) ||
        strcmp(change.is, change.was) == 0)
        return GT_OK;
    return FAIL(GT_USAGE,
                ERROR_OTHER_SHAPE "%s: %s = %s cannot be resumed from %s, whose model has %s%s",
                CONFIG_ORIGIN_TEXT(&config->origin[key]), change.name, change.is, origin->source,
                change.was,
                strncmp(change.name, "lora_", strlen("lora_")) != 0
                    ? ""
                    : "; for new adapters, gpt-export --format=hf first adds these to their model");
}

static enum gt_status read_member(struct config *config, const char *name, const json_t *json,
                                  const struct config_origin *origin, struct config *trial)
{
    enum config_key key = config_key_find(name, strlen(name));
    struct config_value value;
    if (key == CONFIG_KEY_COUNT || !is_stored(config_key_info_get(key)) ||
        strcmp(config_key_info_get(key)->name, name) != 0)
        return FAIL(GT_DATA,
                    "%s: configuration: unknown key \"%s\"; was it written by a newer release?",
                    origin->source, name);
    if (!value_from_json(json, &value))
        return FAIL(GT_DATA, "%s: configuration: %s is neither a number, a string nor a boolean",
                    origin->source, name);
    if (config_key_was_set(config, key) && !is_open(config, key))
        return keep_own(config, key, &value, origin, trial);
    return config_key_assign(config, key, &value, origin) == GT_OK ? GT_OK : GT_DATA;
}

enum gt_status config_from_json(struct config *config, const json_t *object, const char *source)
{
    const struct config_origin origin = {source, 0, 0, true, false};
    struct config trial = *config;
    struct config result = *config;
    enum gt_status status = GT_OK;
    const char *name;
    json_t *json;
    if (!json_is_object(object))
        return FAIL(GT_DATA, "%s: configuration: expected an object", source);
    /* jansson's macro takes a pointer to non-const, but changes nothing. */
    json_object_foreach((json_t *)object, name, json)
    {
        enum gt_status member = read_member(&result, name, json, &origin, &trial);
        if (member != GT_OK && status != GT_DATA)
            status = member;
    }
    if (status == GT_OK)
        *config = result;
    return status;
}

bool config_key_change(const struct config *config, enum config_key key, const json_t *object,
                       struct config_change *out)
{
    const struct config_origin origin = {"", 0, 0, true, false};
    const struct config_key_info *info = config_key_info_get(key);
    struct config trial = *config;
    struct config_change change;
    struct config_value value;
    if ((info->flags & CONFIG_RESULTS) == 0 || !config_key_was_set(config, key) ||
        !value_from_json(json_object_get(object, info->name), &value) ||
        !change_read(config, key, &value, &origin, &trial, &change) ||
        strcmp(change.was, change.is) == 0)
        return false;
    *out = change;
    return true;
}
