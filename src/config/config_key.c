/* The table of keys as data: names, defaults, types, ranges; finding a key, reading and assigning one.
 *
 * keys.def is expanded once per column.  Only this file accesses fields by offset.  Files, flags and checkpoints all
 * set values through config_key_assign(), so that the same rules apply to each.
 */
#include "config/config_key.h"

#include <assert.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"

#define CONFIG_WORDS_BEGIN(name) static const char *const words_##name[] = {
#define CONFIG_WORD(enumerator, word) word,
#define CONFIG_WORDS_END(name) \
    NULL                       \
    }                          \
    ;
#include "config/keys.def"

/* clang-format off */
static const struct config_key_info key_table[CONFIG_KEY_COUNT] = {
#define ROW(id, section, kind, scope, bits, text) \
    .name = #id, .help = text, .type = kind, .group = section, .programs = scope, .flags = bits, \
    .offset = offsetof(struct config, id)
#define CONFIG_INT(id, section, value, min, max, scope, bits, text) \
    {ROW(id, section, CONFIG_TYPE_INT, scope, bits, text), .int_min = min, .int_max = max},
#define CONFIG_REAL(id, section, value, min, max, scope, bits, text) \
    {ROW(id, section, CONFIG_TYPE_REAL, scope, bits, text), .real_min = min, .real_max = max},
#define CONFIG_BOOL(id, section, value, scope, bits, text) \
    {ROW(id, section, CONFIG_TYPE_BOOL, scope, bits, text)},
#define CONFIG_STRING(id, section, value, bytes, scope, bits, text) \
    {ROW(id, section, CONFIG_TYPE_STRING, scope, bits, text), .capacity = bytes},
#define CONFIG_CHOICE(id, section, value, scope, bits, text) \
    {ROW(id, section, CONFIG_TYPE_CHOICE, scope, bits, text), .words = words_##id},
#include "config/keys.def"
};
/* clang-format on */

/* A word of a choice that is an alias of another word. */
struct word_rule {
    enum config_key key;
    const char *word;
    int meaning;
    const char *text;
};

static const struct word_rule word_rules[] = {
#define CONFIG_ALIAS(name, word, enumerator, note) {CONFIG_KEY_##name, word, enumerator, note},
#include "config/keys.def"
};

const struct config_key_info *config_key_info_get(enum config_key key)
{
    assert((size_t)key < CONFIG_KEY_COUNT);
    return &key_table[key];
}

const char *config_group_title(enum config_group group)
{
    static const char *const titles[] = {
#define CONFIG_GROUP(id, title) title,
#include "config/keys.def"
    };
    assert((size_t)group < CONFIG_GROUP_COUNT);
    return titles[group];
}

const char *config_program_name(enum config_program program)
{
    return program == CONFIG_SAMPLE ? "gpt-sample" : "gpt-train";
}

static void default_copy(char *field, const char *value, size_t size)
{
    memcpy(field, value, size);
}

void config_defaults(struct config *config, enum config_program program)
{
    memset(config, 0, sizeof *config);
    config->program = program;
    config->wall_s = clock_wall_s();
    config->backends_built = 1u << CONFIG_BACKEND_CPU;
#define CONFIG_INT(name, group, value, min, max, programs, flags, help) config->name = value;
#define CONFIG_REAL(name, group, value, min, max, programs, flags, help) config->name = value;
#define CONFIG_BOOL(name, group, value, programs, flags, help) config->name = value;
#define CONFIG_STRING(name, group, value, capacity, programs, flags, help) \
    default_copy(config->name, value, sizeof(value));
#define CONFIG_CHOICE(name, group, value, programs, flags, help) config->name = value;
#include "config/keys.def"
    if (program != CONFIG_SAMPLE)
        return;
#define CONFIG_DEFAULT_SAMPLE_STRING(name, value) default_copy(config->name, value, sizeof(value));
#define CONFIG_DEFAULT_SAMPLE_BOOL(name, value) config->name = value;
#include "config/keys.def"
}

void config_backend_add(struct config *config, const char *name)
{
    const char *const *words = key_table[CONFIG_KEY_backend].words;
    for (unsigned i = 0; words[i] != NULL; i++)
        if (strcmp(words[i], name) == 0)
            config->backends_built |= 1u << i;
}

/* ---- finding ---- */

/* Returns a character of a typed name, with `-` as `_`. */
static char name_char(const char *name, size_t at)
{
    return name[at] == '-' ? '_' : name[at];
}

enum config_key config_key_find(const char *name, size_t length)
{
    for (int key = 0; key < CONFIG_KEY_COUNT; key++) {
        const char *known = key_table[key].name;
        size_t at = 0;
        while (at < length && known[at] != '\0' && known[at] == name_char(name, at))
            at++;
        if (at == length && known[at] == '\0')
            return (enum config_key)key;
    }
    return CONFIG_KEY_COUNT;
}

#define NAME_LENGTH_MAX 40

static int int_min3(int a, int b, int c)
{
    int least = a < b ? a : b;
    return least < c ? least : c;
}

int config_name_limit(size_t length)
{
    /* Allows one error in a very short name, two in a short one, else a third of the name. */
    return length < 4 ? 2 : length < 9 ? 3 : (int)(length / 3) + 1;
}

/* Optimal string alignment distance (Damerau's edits without overlaps), in three rolling rows. */
int config_name_distance(const char *name, size_t length, const char *known)
{
    int rows[3][NAME_LENGTH_MAX + 1];
    size_t known_length = strlen(known);

    if (length > NAME_LENGTH_MAX || known_length > NAME_LENGTH_MAX)
        return INT_MAX;
    for (size_t j = 0; j <= known_length; j++)
        rows[0][j] = (int)j;
    for (size_t i = 1; i <= length; i++) {
        int *now = rows[i % 3];
        const int *last = rows[(i + 2) % 3];
        const int *before = rows[(i + 1) % 3];
        char c = name_char(name, i - 1);
        now[0] = (int)i;
        for (size_t j = 1; j <= known_length; j++) {
            now[j] = int_min3(now[j - 1] + 1, last[j] + 1, last[j - 1] + (c == name_char(known, j - 1) ? 0 : 1));
            if (i > 1 && j > 1 && c == name_char(known, j - 2) && name_char(name, i - 2) == name_char(known, j - 1) &&
                before[j - 2] < now[j])
                now[j] = before[j - 2] + 1;
        }
    }
    return rows[length % 3][known_length];
}

enum config_key config_key_nearest(const char *name, size_t length, enum config_program program)
{
    enum config_key nearest = CONFIG_KEY_COUNT;
    int limit = config_name_limit(length);

    for (int key = 0; key < CONFIG_KEY_COUNT; key++) {
        const int longer = (int)strlen(key_table[key].name) - (int)length; /* a lower bound of the distance */
        if ((key_table[key].programs & (unsigned)program) == 0 || abs(longer) >= limit)
            continue;
        const int distance = config_name_distance(name, length, key_table[key].name);
        if (distance < limit && distance < (int)length) {
            limit = distance;
            nearest = (enum config_key)key;
        }
    }
    return nearest;
}

/* Names from other programs, and our hints for them. */
static const struct {
    const char *name;
    unsigned programs;
    const char *answer;
} other_names[] = {
#define CONFIG_OTHER_NAME(name, programs, answer) {#name, programs, answer},
#include "config/keys.def"
};

char *config_key_hint(char out[static CONFIG_HINT_MAX], const char *name, size_t length, enum config_program program)
{
    enum config_key nearest = config_key_nearest(name, length, program);

    for (size_t i = 0; i < sizeof other_names / sizeof other_names[0]; i++) {
        if ((other_names[i].programs & (unsigned)program) != 0 &&
            config_name_distance(name, length, other_names[i].name) == 0) {
            snprintf(out, CONFIG_HINT_MAX, "%s", other_names[i].answer);
            return out;
        }
    }
    if (nearest == CONFIG_KEY_COUNT)
        snprintf(out, CONFIG_HINT_MAX, " (--help=all lists the keys)");
    else
        snprintf(out, CONFIG_HINT_MAX, " (did you mean %s?)", key_table[nearest].name);
    return out;
}

/* ---- reading ---- */

static const void *field_const(const struct config *config, enum config_key key)
{
    return (const char *)config + key_table[key].offset;
}

static void *field(struct config *config, enum config_key key)
{
    return (char *)config + key_table[key].offset;
}

struct config_value config_key_value(const struct config *config, enum config_key key)
{
    const struct config_key_info *info = config_key_info_get(key);
    const void *at = field_const(config, key);
    struct config_value value = {CONFIG_VALUE_NONE, 0, 0.0, NULL};

    switch (info->type) {
    case CONFIG_TYPE_INT:
        value.type = CONFIG_VALUE_INT;
        value.integer = *(const int64_t *)at;
        break;
    case CONFIG_TYPE_REAL:
        value.type = CONFIG_VALUE_REAL;
        value.real = *(const double *)at;
        break;
    case CONFIG_TYPE_BOOL:
        value.type = CONFIG_VALUE_BOOL;
        value.integer = *(const bool *)at ? 1 : 0;
        break;
    case CONFIG_TYPE_STRING:
        value.type = CONFIG_VALUE_STRING;
        value.text = at;
        break;
    case CONFIG_TYPE_CHOICE:
        value.type = CONFIG_VALUE_STRING;
        value.text = info->words[*(const int *)at];
        break;
    }
    return value;
}

char *config_key_text(char out[static CONFIG_VALUE_TEXT_MAX], const struct config *config, enum config_key key)
{
    struct config_value value = config_key_value(config, key);
    return config_value_text(out, &value);
}

bool config_key_was_set(const struct config *config, enum config_key key)
{
    assert((size_t)key < CONFIG_KEY_COUNT);
    return config->origin[key].source != NULL && !config->origin[key].checkpoint;
}

char *config_origin_text(char *out, size_t size, const struct config_origin *origin)
{
    if (origin->source == NULL)
        snprintf(out, size, "the default");
    else if (origin->line > 0)
        snprintf(out, size, "%s:%d:%d", origin->source, (int)origin->line, (int)origin->column);
    else
        snprintf(out, size, "%s", origin->source);
    return out;
}

/* ---- assigning ---- */

/* Logs "PLACE: KEY: expected WANTED, found TYPE VALUE". */
static enum gt_status refuse_type(enum config_key key, const struct config_value *value, const char *wanted,
                                  const struct config_origin *origin)
{
    char place[CONFIG_ORIGIN_TEXT_MAX];
    char text[CONFIG_VALUE_TEXT_MAX];

    config_origin_text(place, sizeof place, origin);
    if (value->type == CONFIG_VALUE_NONE)
        log_error("%s: %s: expected %s, found None", place, key_table[key].name, wanted);
    else
        log_error("%s: %s: expected %s, found %s %s", place, key_table[key].name, wanted,
                  config_value_type_name(value->type), config_value_text(text, value));
    return GT_USAGE;
}

/* Logs "PLACE: KEY = VALUE PROBLEM". */
static enum gt_status refuse_value(enum config_key key, const struct config_value *value, const char *problem,
                                   const struct config_origin *origin)
{
    char place[CONFIG_ORIGIN_TEXT_MAX];
    char text[CONFIG_VALUE_TEXT_MAX];

    log_error("%s: %s = %s %s", config_origin_text(place, sizeof place, origin), key_table[key].name,
              config_value_text(text, value), problem);
    return GT_USAGE;
}

static enum gt_status assign_int(struct config *config, enum config_key key, const struct config_value *value,
                                 const struct config_origin *origin)
{
    const struct config_key_info *info = &key_table[key];
    char problem[96];

    if (value->type == CONFIG_VALUE_NONE && (info->flags & CONFIG_NONE_IS_ZERO) != 0) {
        *(int64_t *)field(config, key) = 0;
        return GT_OK;
    }
    if (value->type != CONFIG_VALUE_INT)
        return refuse_type(key, value, "an int", origin);
    if (value->integer < info->int_min || value->integer > info->int_max) {
        snprintf(problem, sizeof problem, "is out of range: [%" PRId64 ", %" PRId64 "]", info->int_min, info->int_max);
        return refuse_value(key, value, problem, origin);
    }
    *(int64_t *)field(config, key) = value->integer;
    return GT_OK;
}

static enum gt_status assign_real(struct config *config, enum config_key key, const struct config_value *value,
                                  const struct config_origin *origin)
{
    const struct config_key_info *info = &key_table[key];
    bool min_open = (info->flags & CONFIG_MIN_OPEN) != 0;
    bool max_open = (info->flags & CONFIG_MAX_OPEN) != 0;
    double real = value->type == CONFIG_VALUE_INT ? (double)value->integer : value->real;
    char problem[96];
    char min[CONFIG_REAL_TEXT_MAX];
    char max[CONFIG_REAL_TEXT_MAX];

    if (value->type != CONFIG_VALUE_INT && value->type != CONFIG_VALUE_REAL)
        return refuse_type(key, value, "a float", origin);
    /* In the positive form, so that a NaN is rejected. */
    if (!((min_open ? real > info->real_min : real >= info->real_min) &&
          (max_open ? real < info->real_max : real <= info->real_max))) {
        snprintf(problem, sizeof problem, "is out of range: %c%s, %s%c", min_open ? '(' : '[',
                 config_real_text(min, info->real_min), config_real_text(max, info->real_max), max_open ? ')' : ']');
        return refuse_value(key, value, problem, origin);
    }
    *(double *)field(config, key) = real;
    return GT_OK;
}

static enum gt_status assign_string(struct config *config, enum config_key key, const struct config_value *value,
                                    const struct config_origin *origin)
{
    const struct config_key_info *info = &key_table[key];
    const char *text = value->type == CONFIG_VALUE_NONE ? "" : value->text;
    char problem[96];

    if (value->type != CONFIG_VALUE_STRING && value->type != CONFIG_VALUE_NONE)
        return refuse_type(key, value, "a str", origin);
    if (strlen(text) >= info->capacity) {
        snprintf(problem, sizeof problem, "is too long: %zu bytes, at most %zu", strlen(text), info->capacity - 1);
        return refuse_value(key, value, problem, origin);
    }
    if (text[0] == '\0' && (info->flags & CONFIG_NEEDED) != 0)
        return refuse_value(key, value, "is empty", origin);
    /* A checkpoint stores only valid text; a path of this invocation may contain any bytes. */
    json_t *json = (info->flags & CONFIG_INVOCATION) == 0 ? json_string(text) : NULL;
    if ((info->flags & CONFIG_INVOCATION) == 0 && json == NULL)
        return refuse_value(key, value, "is not UTF-8 text", origin);
    json_decref(json);
    memmove(field(config, key), text, strlen(text) + 1);
    return GT_OK;
}

/* Writes "is none of auto, erf, tanh", or that there is only one word so far. */
static void choice_problem(char problem[static 256], const struct config_key_info *info)
{
    size_t used = 0;

    if (info->words[1] == NULL) {
        snprintf(problem, 256, "is not known: '%s' is the only value so far", info->words[0]);
        return;
    }
    used = (size_t)snprintf(problem, 256, "is none of ");
    for (size_t i = 0; info->words[i] != NULL && used < 256; i++)
        used += (size_t)snprintf(problem + used, 256 - used, "%s%s", i == 0 ? "" : ", ", info->words[i]);
}

/* Returns the rule for a word, or NULL. */
static const struct word_rule *word_rule_find(enum config_key key, const char *word)
{
    for (size_t i = 0; i < sizeof word_rules / sizeof word_rules[0]; i++)
        if (word_rules[i].key == key && strcmp(word_rules[i].word, word) == 0)
            return &word_rules[i];
    return NULL;
}

static enum gt_status assign_choice(struct config *config, enum config_key key, const struct config_value *value,
                                    const struct config_origin *origin)
{
    const struct config_key_info *info = &key_table[key];
    const struct word_rule *rule = NULL;
    char problem[256];

    if (value->type != CONFIG_VALUE_STRING)
        return refuse_type(key, value, "a str", origin);
    for (int i = 0; info->words[i] != NULL; i++) {
        if (strcmp(info->words[i], value->text) == 0) {
            *(int *)field(config, key) = i;
            return GT_OK;
        }
    }
    rule = word_rule_find(key, value->text);
    if (rule != NULL) {
        log_note("%s='%s': %s", info->name, value->text, rule->text);
        *(int *)field(config, key) = rule->meaning;
        return GT_OK;
    }
    choice_problem(problem, info);
    return refuse_value(key, value, problem, origin);
}

static enum gt_status assign_field(struct config *config, enum config_key key, const struct config_value *value,
                                   const struct config_origin *origin)
{
    switch (key_table[key].type) {
    case CONFIG_TYPE_INT:
        return assign_int(config, key, value, origin);
    case CONFIG_TYPE_REAL:
        return assign_real(config, key, value, origin);
    case CONFIG_TYPE_STRING:
        return assign_string(config, key, value, origin);
    case CONFIG_TYPE_CHOICE:
        return assign_choice(config, key, value, origin);
    default:
        break;
    }
    if (value->type != CONFIG_VALUE_BOOL)
        return refuse_type(key, value, "True or False", origin);
    *(bool *)field(config, key) = value->integer != 0;
    return GT_OK;
}

enum gt_status config_key_assign(struct config *config, enum config_key key, const struct config_value *value,
                                 const struct config_origin *origin)
{
    enum gt_status status = GT_OK;
    const struct config_origin before = config->origin[key];
    char was[CONFIG_VALUE_TEXT_MAX], is[CONFIG_VALUE_TEXT_MAX], place[CONFIG_ORIGIN_TEXT_MAX];

    assert((size_t)key < CONFIG_KEY_COUNT);
    assert(origin->source != NULL);
    config_key_text(was, config, key);
    status = assign_field(config, key, value, origin);
    config->origin[key] = *origin;
    if (status == GT_OK && origin->line > 0 && before.source != NULL && before.line == 0 && !before.checkpoint &&
        strcmp(was, config_key_text(is, config, key)) != 0)
        log_note("%s: %s=%s replaces %s of the command line; a flag after the file would stay",
                 config_origin_text(place, sizeof place, origin), key_table[key].name, is, was);
    config->origin[key].bad = status != GT_OK;
    return status;
}
