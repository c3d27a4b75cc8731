/* Reads values given as text.  Finds other programs' names for keys, and does what they ask for
 * (names.def).
 *
 * If a name has a key's meaning, the caller assigns the key.  Other names set a key to a certain
 * value, are not needed here, or are refused.  A name whose value is off gets no answer, because
 * other programs write their defaults into files.
 */
#include "config/config_names.h"

#include "config/config_lex.h"
#include "config/config_value.h"

int config_boolean_word(const char *text)
{
    static const char *const words[] = {"False", "True", "false", "true", "0", "1", "no", "yes"};
    for (int i = 0; i < 8; i++)
        if (strcmp(text, words[i]) == 0)
            return i % 2;
    return -1;
}

/* Text of the wrong form becomes a str, which the assignment rejects with a message. */
enum gt_status config_text_assign(struct config *config, enum config_key key, const char *text,
                                  const struct config_origin *origin)
{
    const struct config_key_info *info = config_key_info_get(key);
    struct config_value value = {.type = CONFIG_VALUE_STRING, .text = text}, literal;
    char pool[FILE_PATH_MAX + 16]; /* for a string without its quotes */
    const bool is_text = info->type == CONFIG_TYPE_STRING || info->type == CONFIG_TYPE_WORD;
    const int boolean = config_boolean_word(text);
    if (info->type == CONFIG_TYPE_BOOL && boolean >= 0)
        value = (struct config_value){.type = CONFIG_VALUE_BOOL, .integer = boolean};
    else if ((info->flags & CONFIG_NONE_IS_ZERO) != 0 && strcmp(text, "None") == 0)
        value = (struct config_value){.type = CONFIG_VALUE_NONE};
    else if (config_lex_literal(text, pool, sizeof pool, &literal) &&
             (literal.type == CONFIG_VALUE_STRING) == is_text)
        value = literal;
    return config_key_assign(config, key, &value, origin);
}

static const struct config_other table[] = {
#define CONFIG_SAME_NAME(name, programs, key) \
    {#name, CONFIG_OTHER_SAME, programs, CONFIG_KEY_##key, NULL},
#define CONFIG_UPDATES_NAME(name, programs, key) \
    {#name, CONFIG_OTHER_UPDATES, programs, CONFIG_KEY_##key, NULL},
#define CONFIG_SHARE_NAME(name, programs, key, share) \
    {#name, CONFIG_OTHER_SHARE, programs, CONFIG_KEY_##key, #share},
#define CONFIG_TRUE_NAME(name, programs, key, word) \
    {#name, CONFIG_OTHER_TRUE, programs, CONFIG_KEY_##key, word},
#define CONFIG_IMPLIES_NAME(name, programs, key, word) \
    {#name, CONFIG_OTHER_IMPLIES, programs, CONFIG_KEY_##key, word},
#define CONFIG_NEEDLESS_NAME(name, programs, answer) \
    {#name, CONFIG_OTHER_NEEDLESS, programs, CONFIG_KEY_COUNT, answer},
#define CONFIG_FIXED_NAME(name, programs, answer) \
    {#name, CONFIG_OTHER_FIXED, programs, CONFIG_KEY_COUNT, answer},
#define CONFIG_LACKING_NAME(name, programs, answer) \
    {#name, CONFIG_OTHER_LACKING, programs, CONFIG_KEY_COUNT, answer},
#define CONFIG_OTHER_NAME(name, programs, answer) \
    {#name, CONFIG_OTHER_HINT, programs, CONFIG_KEY_COUNT, answer},
#include "config/names.def"
};

const struct config_other *config_other_find(const char *name, size_t length,
                                             enum config_program program)
{
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        if ((table[i].programs & (unsigned)program) != 0 &&
            config_name_is(name, length, table[i].name))
            return &table[i];
    return NULL;
}

char *config_key_hint(char out[static CONFIG_HINT_MAX], const char *name, size_t length,
                      enum config_program program)
{
    const struct config_other *other = config_other_find(name, length, program);
    const enum config_key near = config_key_nearest(name, length, program);
    if (other != NULL && other->kind == CONFIG_OTHER_HINT)
        snprintf(out, CONFIG_HINT_MAX, "%s", other->text);
    else if (near != CONFIG_KEY_COUNT)
        snprintf(out, CONFIG_HINT_MAX, " (did you mean %s?)", config_key_info_get(near)->name);
    else
        snprintf(out, CONFIG_HINT_MAX, " (--help=all lists the keys)");
    return out;
}

/* Returns true if the value turns a feature off, or leaves it to the program. */
static bool is_off(const struct config_value *value)
{
    static const char *const words[] = {"", "none", "None", "no", "off", "auto", "sft"};
    if (value->type == CONFIG_VALUE_REAL)
        return value->real == 0.0;
    if (value->type != CONFIG_VALUE_STRING)
        return value->integer == 0;
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strcmp(value->text, words[i]) == 0)
            return true;
    return false;
}

static bool is_share(const struct config_value *value)
{
    return value->type == CONFIG_VALUE_REAL && value->real > 0.0 && value->real < 1.0;
}

#define ANSWER_MAX 384

/* Writes "PLACE: NAME: ANSWER", with the value instead of {}. For a flag, PLACE contains NAME. */
static char *answer_text(char out[static ANSWER_MAX], const struct config_other *other,
                         const struct config_value *value, const struct config_origin *origin)
{
    const char *mark = strstr(other->text, "{}"), *rest = mark != NULL ? mark + 2 : "";
    const bool text = value->type == CONFIG_VALUE_STRING;
    const char *shown = mark == NULL ? "" : text ? value->text : CONFIG_VALUE_TEXT(value);
    snprintf(out, ANSWER_MAX, "%s: %s%s%.*s%.80s%s", CONFIG_ORIGIN_TEXT(origin),
             origin->line > 0 ? other->name : "", origin->line > 0 ? ": " : "",
             (int)(mark != NULL ? mark - other->text : (ptrdiff_t)strlen(other->text)), other->text,
             shown, rest);
    return out;
}

/* Sets a key, which is the number of the last update counted from 0, to the number of updates less
 * 1. */
static enum gt_status updates_set(struct config *config, const struct config_other *other,
                                  const struct config_value *value,
                                  const struct config_origin *origin)
{
    struct config_value last = *value;
    if (value->type == CONFIG_VALUE_INT && value->integer < 1)
        return GT_OK;
    last.integer -= value->type == CONFIG_VALUE_INT;
    last.real -= 1.0;
    return config_key_assign(config, other->key, &last, origin);
}

/* Sets a key to the word that a name stands for; bf16 and fp16 contradict each other. */
static enum gt_status true_set(struct config *config, const struct config_other *other,
                               const struct config_origin *origin)
{
    const struct config_value word = {.type = CONFIG_VALUE_STRING, .text = other->text};
    if (other->key == CONFIG_KEY_dtype && config_key_was_set(config, CONFIG_KEY_dtype) &&
        (config->origin[CONFIG_KEY_dtype].line > 0) == (origin->line > 0) &&
        strcmp(config_key_value(config, CONFIG_KEY_dtype).text, other->text) != 0)
        return FAIL(GT_USAGE, ERROR_BAD_VALUE "%s: %s contradicts %s", CONFIG_ORIGIN_TEXT(origin),
                    other->name, CONFIG_KEY_DESCRIBED(config, CONFIG_KEY_dtype));
    return config_key_assign(config, other->key, &word, origin);
}

/* Sets a key to another program's default, unless it is set already.  Later settings replace the
 * value. */
static enum gt_status implied_set(struct config *config, const struct config_other *other,
                                  const struct config_value *value,
                                  const struct config_origin *origin)
{
    const bool text = value->type == CONFIG_VALUE_STRING;
    const char *key = config_key_info_get(other->key)->name;
    if (text && strcmp(value->text, "lora") != 0 && strcmp(value->text, "qlora") != 0) {
        if (strcmp(value->text, "full") == 0)
            return GT_OK;
        return FAIL(GT_USAGE, ERROR_BAD_VALUE "%s: %s = '%.40s' is not full, lora or qlora",
                    CONFIG_ORIGIN_TEXT(origin), other->name, value->text);
    }
    if (config_key_was_set(config, other->key))
        return GT_OK;
    log_note("%s: %s%s%s=%s, unless it is set", CONFIG_ORIGIN_TEXT(origin),
             origin->line > 0 ? other->name : "", origin->line > 0 ? ": " : "", key, other->text);
    return config_text_assign(config, other->key, other->text, origin);
}

enum gt_status config_other_set(struct config *config, const struct config_other *other,
                                const struct config_value *value,
                                const struct config_origin *origin)
{
    char text[ANSWER_MAX];
    assert(other->kind != CONFIG_OTHER_SAME);
    if (other->kind == CONFIG_OTHER_HINT)
        return FAIL(GT_USAGE, ERROR_UNKNOWN_KEY "%s: unknown key %s%s", CONFIG_ORIGIN_TEXT(origin),
                    other->name, other->text);
    if (other->kind == CONFIG_OTHER_UPDATES)
        return value->type == CONFIG_VALUE_NONE ? GT_OK : updates_set(config, other, value, origin);
    if (other->kind == CONFIG_OTHER_SHARE)
        return config_key_assign(config,
                                 is_share(value) ? config_key_find(other->text, strlen(other->text))
                                                 : other->key,
                                 value, origin);
    if (value->type == CONFIG_VALUE_NONE || (other->kind != CONFIG_OTHER_FIXED && is_off(value)))
        return GT_OK;
    if (other->kind == CONFIG_OTHER_LACKING)
        return FAIL(GT_USAGE, ERROR_UNKNOWN_KEY "%s", answer_text(text, other, value, origin));
    if (other->kind == CONFIG_OTHER_TRUE)
        return true_set(config, other, origin);
    if (other->kind == CONFIG_OTHER_IMPLIES)
        return implied_set(config, other, value, origin);
    log_note("%s", answer_text(text, other, value, origin));
    return GT_OK;
}

enum gt_status config_other_text_set(struct config *config, const struct config_other *other,
                                     const char *text, const struct config_origin *origin)
{
    struct config_value value = {.type = CONFIG_VALUE_STRING, .text = text}, literal;
    const int boolean = config_boolean_word(text);
    char pool[FILE_PATH_MAX + 16];
    if (config_lex_literal(text, pool, sizeof pool, &literal))
        value = literal;
    else if (boolean >= 0)
        value = (struct config_value){.type = CONFIG_VALUE_BOOL, .integer = boolean};
    return config_other_set(config, other, &value, origin);
}
