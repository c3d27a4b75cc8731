/* The table of keys as data: names, defaults, types, ranges; finding a key, reading and assigning
 * one.
 *
 * keys.def is expanded once per column.  Only this file accesses fields by offset.  Files, flags
 * and checkpoints all set values through config_key_assign(), so that the same rules apply to each.
 */
#include "config/config_key.h"

#include <limits.h>
#include <math.h>

#include "base/size.h"
#include "base/utf8.h"
#include "config/config_value.h"

#define CONFIG_WORDS(name, enumerators, words)                                                \
    static const char *const words_##name[] = {CONFIG_LIST words, NULL};                      \
    _Static_assert(sizeof words_##name / sizeof words_##name[0] == config_##name##_count + 1, \
                   "a word each");
#include "config/keys.def"
#define SHAPE_WORDS(name, words) \
    static const char *const words_##name[] = {"auto", CONFIG_LIST words, NULL};
#include "base/shape.def"
static const char *const words_arch[] = {
    "auto",
#define ARCH(name, ...) #name,
#define ARCH_OF_FILES(name, ...)
#include "base/archs.def"
    NULL,
};

/* clang-format off */
static const struct config_key_info key_table[CONFIG_KEY_COUNT] = {
#define ROW(id, kind, scope, bits, text) \
    .name = #id, .help = text, .type = kind, .programs = scope, .flags = bits, \
    .offset = offsetof(struct config, id)
#define CONFIG_INT(id, value, min, max, scope, bits, text) \
    {ROW(id, CONFIG_TYPE_INT, scope, bits, text), .int_min = min, .int_max = max},
#define CONFIG_REAL(id, value, min, max, scope, bits, text) \
    {ROW(id, CONFIG_TYPE_REAL, scope, bits, text), .real_min = min, .real_max = max},
#define CONFIG_BOOL(id, value, scope, bits, text) \
    {ROW(id, CONFIG_TYPE_BOOL, scope, bits, text)},
#define CONFIG_STRING(id, value, bytes, scope, bits, text) \
    {ROW(id, CONFIG_TYPE_STRING, scope, bits, text), .capacity = bytes},
#define CONFIG_WORD(id, value, scope, bits, text) \
    {ROW(id, CONFIG_TYPE_WORD, scope, bits, text), .words = words_##id},
#include "config/keys.def"
};
/* clang-format on */

/* Words of choices that are aliases of other words. */
static const struct {
    enum config_key key;
    const char *word;
    int meaning;
    const char *text;
} word_rules[] = {
#define CONFIG_ALIAS(name, word, enumerator, note) {CONFIG_KEY_##name, word, enumerator, note},
#include "config/keys.def"
};

const struct config_key_info *config_key_info_get(enum config_key key)
{
    assert((size_t)key < CONFIG_KEY_COUNT);
    return &key_table[key];
}

const char *config_program_name(enum config_program program)
{
    return program == CONFIG_SAMPLE ? "gpt-sample" : "gpt-train";
}

void config_defaults(struct config *config, enum config_program program)
{
    memset(config, 0, sizeof *config);
    config->program = program;
    config->local_ranks = 1;
    config->backends_built = 1u << CONFIG_BACKEND_CPU;
#define CONFIG_INT(name, value, min, max, programs, flags, help) config->name = value;
#define CONFIG_REAL(name, value, min, max, programs, flags, help) config->name = value;
#define CONFIG_BOOL(name, value, programs, flags, help) config->name = value;
#define CONFIG_STRING(name, value, capacity, programs, flags, help) \
    (void)snprintf(config->name, sizeof config->name, "%s", value);
#define CONFIG_WORD(name, value, programs, flags, help) config->name = value;
#include "config/keys.def"
    if (program == CONFIG_SAMPLE) { /* sample.py's own defaults */
        (void)snprintf(config->init_from, sizeof config->init_from, "resume");
        config->compile = false;
    }
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

#define NAME_LENGTH_MAX 40

/* Returns the edit distance of two names (insertion, deletion, substitution, transposition of
 * neighbours), or INT_MAX if either is longer than NAME_LENGTH_MAX: Damerau's edits without
 * overlaps, in three rolling rows. */
static int name_distance(const char *name, size_t length, const char *known)
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
            now[j] = last[j - 1] + (c == name_char(known, j - 1) ? 0 : 1);
            now[j] = (int)min_i64(now[j], min_i64(now[j - 1], last[j]) + 1);
            if (i > 1 && j > 1 && c == name_char(known, j - 2) &&
                name_char(name, i - 2) == name_char(known, j - 1))
                now[j] = (int)min_i64(now[j], before[j - 2] + 1);
        }
    }
    return rows[length % 3][known_length];
}

void config_nearest_try(struct config_nearest *nearest, const char *known)
{
    const int length = (int)nearest->length;
    /* One error may be in a short name, and one more for each eight letters of a longer one. */
    const int limit = nearest->known != NULL ? nearest->distance : length / 8 + 2;
    /* The difference of the lengths is a lower bound of the distance. */
    const int distance = abs((int)strlen(known) - length) < limit
                             ? name_distance(nearest->name, nearest->length, known)
                             : INT_MAX;
    if (distance >= limit)
        return;
    nearest->known = known;
    nearest->distance = distance;
}

bool config_name_is(const char *name, size_t length, const char *known)
{
    return strlen(known) == length && name_distance(name, length, known) == 0;
}

enum config_key config_key_find(const char *name, size_t length)
{
    for (int key = 0; key < CONFIG_KEY_COUNT; key++)
        if (config_name_is(name, length, key_table[key].name))
            return (enum config_key)key;
    return CONFIG_KEY_COUNT;
}

enum config_key config_key_nearest(const char *name, size_t length, enum config_program program)
{
    struct config_nearest nearest = {.name = name, .length = length};
    enum config_key found = CONFIG_KEY_COUNT;
    for (int key = 0; key < CONFIG_KEY_COUNT; key++) {
        if ((key_table[key].programs & (unsigned)program) == 0)
            continue;
        config_nearest_try(&nearest, key_table[key].name);
        if (nearest.known == key_table[key].name)
            found = (enum config_key)key;
    }
    return nearest.distance >= (int)length ? CONFIG_KEY_COUNT : found;
}

bool config_name_is_wandb(const char *name, size_t length)
{
    return length >= 6 && strncmp(name, "wandb", 5) == 0 && name_char(name, 5) == '_';
}

/* ---- reading ---- */

struct config_value config_key_value(const struct config *config, enum config_key key)
{
    const struct config_key_info *info = config_key_info_get(key);
    const void *at = (const char *)config + info->offset;
    switch (info->type) {
    case CONFIG_TYPE_INT:
        return (struct config_value){.type = CONFIG_VALUE_INT, .integer = *(const int64_t *)at};
    case CONFIG_TYPE_REAL:
        return (struct config_value){.type = CONFIG_VALUE_REAL, .real = *(const double *)at};
    case CONFIG_TYPE_BOOL:
        return (struct config_value){.type = CONFIG_VALUE_BOOL,
                                     .integer = *(const bool *)at ? 1 : 0};
    case CONFIG_TYPE_STRING:
        return (struct config_value){.type = CONFIG_VALUE_STRING, .text = at};
    default:
        return (struct config_value){.type = CONFIG_VALUE_STRING,
                                     .text = info->words[*(const int *)at]};
    }
}

char *config_key_text(char out[static CONFIG_VALUE_TEXT_MAX], const struct config *config,
                      enum config_key key)
{
    struct config_value value = config_key_value(config, key);
    return config_value_text(out, &value);
}

bool config_key_was_set(const struct config *config, enum config_key key)
{
    assert((size_t)key < CONFIG_KEY_COUNT);
    return config->origin[key].source != NULL && !config->origin[key].checkpoint;
}

bool config_key_is_typed(const struct config *config, enum config_key key)
{
    return config_key_was_set(config, key) && config->origin[key].line == 0;
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

char *config_key_described(char out[static CONFIG_ORIGIN_TEXT_MAX], const struct config *config,
                           enum config_key key)
{
    snprintf(out, CONFIG_ORIGIN_TEXT_MAX, "%s=%s (%s)", config_key_info_get(key)->name,
             CONFIG_KEY_TEXT(config, key), CONFIG_ORIGIN_TEXT(&config->origin[key]));
    return out;
}

/* ---- assigning ---- */

struct assignment {
    const struct config_key_info *info;
    enum config_key key;
    const struct config_value *value;
    const struct config_origin *origin;
    void *field; /* of the key */
};

/* Returns true if the value is a float that an int64_t holds exactly. */
static bool is_whole(const struct config_value *value)
{
    return value->type == CONFIG_VALUE_REAL && fabs(value->real) <= 0x1p53 &&
           floor(value->real) == value->real;
}

bool config_path_is_flat(const char *path)
{
    static const char *const flat[] = {".yaml", ".yml", ".json"};
    const char *ending = strrchr(path, '.');
    for (size_t i = 0; i < sizeof flat / sizeof flat[0] && ending != NULL; i++)
        if (strcmp(ending, flat[i]) == 0)
            return true;
    return false;
}

/* Returns true if an expression may have made the value: one of a file of Python. */
static bool is_expression(const struct config_origin *origin)
{
    return origin->line > 0 && !config_path_is_flat(origin->source);
}

/* Logs "PLACE: KEY: expected WANTED, found TYPE VALUE", and how a float becomes an int. */
static enum gt_status refuse_type(const struct assignment *at, const char *wanted)
{
    const bool none = at->value->type == CONFIG_VALUE_NONE, whole = is_whole(at->value);
    const bool fraction = at->value->type == CONFIG_VALUE_REAL && !whole;
    char way[64] = "";
    if (at->info->type == CONFIG_TYPE_INT && whole)
        snprintf(way, sizeof way, "; write %.0f", at->value->real);
    else if (at->info->type == CONFIG_TYPE_INT && fraction && is_expression(at->origin))
        snprintf(way, sizeof way, "; // divides without a fraction, and int(...) drops it");
    return FAIL(GT_USAGE, ERROR_BAD_VALUE "%s: %s: expected %s, found %s%s%s%s",
                CONFIG_ORIGIN_TEXT(at->origin), at->info->name, wanted,
                config_value_type_name(at->value->type), none ? "" : " ",
                none ? "" : CONFIG_VALUE_TEXT(at->value), way);
}

/* Logs "PLACE: KEY = VALUE PROBLEM". */
static enum gt_status refuse_value(const struct assignment *at, const char *problem)
{
    return FAIL(GT_USAGE, ERROR_BAD_VALUE "%s: %s = %s %s", CONFIG_ORIGIN_TEXT(at->origin),
                at->info->name, CONFIG_VALUE_TEXT(at->value), problem);
}

static enum gt_status assign_int(const struct assignment *at)
{
    const struct config_key_info *info = at->info;
    const bool none =
        at->value->type == CONFIG_VALUE_NONE && (info->flags & CONFIG_NONE_IS_ZERO) != 0;
    const bool whole = (info->flags & CONFIG_WHOLE) != 0 && is_whole(at->value);
    const int64_t integer = none ? 0 : whole ? (int64_t)at->value->real : at->value->integer;
    if (at->value->type != CONFIG_VALUE_INT && !none && !whole)
        return refuse_type(at, "an int");
    if (!none && (integer < info->int_min || integer > info->int_max))
        return refuse_value(at, TEXT(80, "is out of range: [%" PRId64 ", %" PRId64 "]",
                                     info->int_min, info->int_max));
    *(int64_t *)at->field = integer;
    return GT_OK;
}

static enum gt_status assign_real(const struct assignment *at)
{
    const struct config_key_info *info = at->info;
    const bool min_open = (info->flags & CONFIG_MIN_OPEN) != 0,
               max_open = (info->flags & CONFIG_MAX_OPEN) != 0;
    const bool is_int = at->value->type == CONFIG_VALUE_INT;
    const double real = is_int ? (double)at->value->integer : at->value->real;
    if (!is_int && at->value->type != CONFIG_VALUE_REAL)
        return refuse_type(at, "a float");
    /* In the positive form, so that a NaN is rejected. */
    if (!((min_open ? real > info->real_min : real >= info->real_min) &&
          (max_open ? real < info->real_max : real <= info->real_max)))
        return refuse_value(at, TEXT(120, "is out of range: %c%s, %s%c", min_open ? '(' : '[',
                                     CONFIG_REAL_TEXT(info->real_min),
                                     CONFIG_REAL_TEXT(info->real_max), max_open ? ')' : ']'));
    *(double *)at->field = real;
    return GT_OK;
}

static enum gt_status assign_bool(const struct assignment *at)
{
    if (at->value->type != CONFIG_VALUE_BOOL)
        return refuse_type(at, "True or False");
    *(bool *)at->field = at->value->integer != 0;
    return GT_OK;
}

static enum gt_status assign_string(const struct assignment *at)
{
    const bool none = at->value->type == CONFIG_VALUE_NONE,
               stored = (at->info->flags & CONFIG_INVOCATION) == 0;
    char at_home[FILE_PATH_MAX];
    const char *text = none ? "" : at->value->text;
    if (at->value->type != CONFIG_VALUE_STRING && !none)
        return refuse_type(at, "a str");
    if ((at->info->flags & (CONFIG_PATH | CONFIG_HOME)) != 0)
        text = file_expand_home(at_home, text);
    if (strlen(text) >= at->info->capacity)
        return refuse_value(at, TEXT(80, "is too long: %zu bytes, at most %zu", strlen(text),
                                     at->info->capacity - 1));
    if (text[0] == '\0' && (at->info->flags & CONFIG_NEEDED) != 0)
        return refuse_value(at, "is empty");
    /* A checkpoint stores only valid text; a path of this invocation may contain any bytes. */
    if (stored && utf8_count_invalid((const unsigned char *)text, strlen(text)) > 0)
        return refuse_value(at, "is not UTF-8 text");
    memmove(at->field, text, strlen(text) + 1);
    return GT_OK;
}

/* An error message for an unknown word lists the words that the key accepts. */
static enum gt_status assign_word(const struct assignment *at)
{
    char list[224] = "";
    if (at->value->type != CONFIG_VALUE_STRING)
        return refuse_type(at, "a str");
    for (int i = 0; at->info->words[i] != NULL; i++) {
        if (strcmp(at->info->words[i], at->value->text) == 0) {
            *(int *)at->field = i;
            return GT_OK;
        }
        snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s", i == 0 ? "" : ", ",
                 at->info->words[i]);
    }
    for (size_t i = 0; i < sizeof word_rules / sizeof word_rules[0]; i++) {
        if (word_rules[i].key == at->key && strcmp(word_rules[i].word, at->value->text) == 0) {
            log_note("%s='%s': %s", at->info->name, at->value->text, word_rules[i].text);
            *(int *)at->field = word_rules[i].meaning;
            return GT_OK;
        }
    }
    return refuse_value(at, TEXT(256, "is none of %s", list));
}

enum gt_status config_key_assign(struct config *config, enum config_key key,
                                 const struct config_value *value,
                                 const struct config_origin *origin)
{
    enum gt_status (*const assign[])(const struct assignment *) = {
        [CONFIG_TYPE_INT] = assign_int,   [CONFIG_TYPE_REAL] = assign_real,
        [CONFIG_TYPE_BOOL] = assign_bool, [CONFIG_TYPE_STRING] = assign_string,
        [CONFIG_TYPE_WORD] = assign_word,
    };
    const struct config_key_info *info = config_key_info_get(key);
    const struct assignment at = {info, key, value, origin, (char *)config + info->offset};
    const struct config_origin before = config->origin[key];
    char was[CONFIG_VALUE_TEXT_MAX], is[CONFIG_VALUE_TEXT_MAX];
    assert(origin->source != NULL);
    config_key_text(was, config, key);
    const enum gt_status status = assign[info->type](&at);
    config->origin[key] = *origin;
    if (status == GT_OK && origin->line > 0 && before.source != NULL && before.line == 0 &&
        !before.checkpoint && strcmp(was, config_key_text(is, config, key)) != 0)
        log_note("%s: %s=%s replaces %s of the command line; a flag after the file would stay",
                 CONFIG_ORIGIN_TEXT(origin), info->name, is, was);
    config->origin[key].bad = status != GT_OK;
    return status;
}
