/* Builds the text of a rendered conversation: bytes, JSON as Python writes it, and Python's white
 * space.
 *
 * transformers renders templates in Python: json.dumps() writes lists of tools and arguments of
 * calls, and str.strip() trims texts.
 */
#include "data/chat_out.h"

#include <stdlib.h>

#include "base/size.h"
#include "base/utf8.h"

#define DEPTH_MAX 64

void chat_out_bytes(struct chat_out *out, const char *bytes, size_t count)
{
    out->full = out->full || count > out->room - out->count;
    if (out->full)
        return;
    memcpy(out->text + out->count, bytes, count);
    out->count += count;
}

void chat_out_text(struct chat_out *out, const char *text)
{
    chat_out_bytes(out, text, strlen(text));
}

/* ---- JSON ---- */

/* ensure_ascii=False: only quotes, backslashes and control characters are escaped. */
static void string_write(struct chat_out *out, const char *text, size_t count)
{
    static const char names[] = "\"\\\n\r\t\f\b", letters[] = "\"\\nrtfb";
    chat_out_text(out, "\"");
    for (size_t i = 0; i < count; i++) {
        const char *name = text[i] != '\0' ? strchr(names, text[i]) : NULL;
        if (name != NULL)
            chat_out_bytes(out, (const char[]){'\\', letters[name - names]}, 2);
        else if ((unsigned char)text[i] < 0x20)
            chat_out_text(out, TEXT(8, "\\u%04x", (unsigned)text[i]));
        else
            chat_out_bytes(out, &text[i], 1);
    }
    chat_out_text(out, "\"");
}

/* Writes Python's repr(): the fewest digits that read back as the number, and an exponent below
 * 1e-4 or from 1e16 on. */
static void real_write(struct chat_out *out, double value)
{
    char digits[40];
    int precision = 0;
    do
        snprintf(digits, sizeof digits, "%.*e", precision, value);
    while (strtod(digits, NULL) != value && ++precision < 17);
    const int exponent = atoi(strchr(digits, 'e') + 1);
    if (exponent < -4 || exponent >= 16) {
        chat_out_text(out, digits);
        return;
    }
    const int decimals = precision > exponent ? precision - exponent : 0;
    snprintf(digits, sizeof digits, "%.*f", decimals > 0 ? decimals : 1, value);
    chat_out_text(out, digits);
}

static void scalar_write(struct chat_out *out, const json_t *value)
{
    if (json_is_string(value))
        string_write(out, json_string_value(value), json_string_length(value));
    else if (json_is_integer(value))
        chat_out_text(out, TEXT(32, "%" PRId64, (int64_t)json_integer_value(value)));
    else if (json_is_real(value))
        real_write(out, json_real_value(value));
    else
        chat_out_text(out, json_is_true(value) ? "true" : json_is_false(value) ? "false" : "null");
}

/* A list or an object that is being written. */
struct level {
    const json_t *value;
    size_t index; /* of the next element */
    void *next;   /* the iterator of the next member */
};

static void line_begin(struct chat_out *out, int indent, size_t depth)
{
    if (indent > 0)
        chat_out_text(out, "\n");
    for (size_t i = 0; i < (size_t)indent * depth; i++)
        chat_out_text(out, " ");
}

/* Returns the next element of a level, after writing its separator and key, or NULL at the end. */
static const json_t *level_next(struct chat_out *out, struct level *level, int indent, size_t depth)
{
    const bool is_list = json_is_array(level->value);
    const json_t *value =
        is_list ? json_array_get(level->value, level->index) : json_object_iter_value(level->next);
    if (value == NULL)
        return NULL;
    if (level->index > 0)
        chat_out_text(out, indent > 0 ? "," : ", ");
    line_begin(out, indent, depth);
    level->index++;
    if (is_list)
        return value;
    const char *key = json_object_iter_key(level->next);
    string_write(out, key, strlen(key));
    chat_out_text(out, ": ");
    level->next = json_object_iter_next((json_t *)level->value, level->next); /* changes nothing */
    return value;
}

bool chat_out_json(struct chat_out *out, const json_t *value, int indent)
{
    struct level levels[DEPTH_MAX];
    size_t depth = 0;
    for (bool more = true; more; more = depth > 0) {
        if (value != NULL && (json_is_array(value) || json_is_object(value))) {
            if (depth == DEPTH_MAX)
                return false;
            levels[depth++] =
                (struct level){.value = value, .next = json_object_iter((json_t *)value)};
            chat_out_text(out, json_is_array(value) ? "[" : "{");
        } else if (value != NULL) {
            scalar_write(out, value);
        }
        if (depth == 0)
            break;
        struct level *level = &levels[depth - 1];
        value = level_next(out, level, indent, depth);
        if (value != NULL)
            continue;
        depth--;
        if (level->index > 0)
            line_begin(out, indent, depth);
        chat_out_text(out, json_is_array(level->value) ? "]" : "}");
    }
    return true;
}

/* ---- white space ---- */

static bool is_space(uint32_t code_point)
{
    static const uint32_t others[] = {0x20,   0x85,   0xA0,   0x1680, 0x2028,
                                      0x2029, 0x202F, 0x205F, 0x3000};
    bool found = (code_point >= 9 && code_point <= 13) ||
                 (code_point >= 0x1C && code_point <= 0x1F) ||
                 (code_point >= 0x2000 && code_point <= 0x200A);
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        found = found || code_point == others[i];
    return found;
}

size_t chat_strip_end(const char *text, size_t count)
{
    uint32_t code_point = 0;
    while (count > 0) {
        size_t at = count - 1;
        while (at > 0 && ((unsigned char)text[at] & 0xC0u) == 0x80)
            at--;
        const int length = utf8_decode((const unsigned char *)text + at, count - at, &code_point);
        if (length <= 0 || !is_space(code_point))
            break;
        count = at;
    }
    return count;
}

const char *chat_strip(const char *text, size_t *count)
{
    uint32_t code_point = 0;
    size_t left = chat_strip_end(text, *count);
    while (left > 0) {
        const int length = utf8_decode((const unsigned char *)text, left, &code_point);
        if (length <= 0 || !is_space(code_point))
            break;
        text += length;
        left -= (size_t)length;
    }
    *count = left;
    return text;
}
