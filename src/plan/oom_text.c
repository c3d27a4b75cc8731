/* Removes from a log what hides a message in it.
 *
 * Escape sequences are those of ECMA-48: ESC [ parameters letter (colours), ESC ] ... BEL (titles),
 * and short ones. Logs also hold them as text: as "\x1b[31m" in JSON, as "^[[31m" after cat -v, as
 * "[31m" where a web page dropped the ESC.  Only colours are recognised in these forms.  The prefix
 * of a line is not described by a grammar: it is what the line has in common with the line of the
 * message.
 */
#include "plan/oom_text.h"

#include <string.h>

#define SEQUENCE_BYTES_MAX 256

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_word(char c)
{
    return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* ---- UTF-16 ---- */

/* A text in UTF-16 begins with a byte-order mark or with a character of ASCII, one byte of which is
 * zero. */
static bool is_utf16(const char *text, size_t count)
{
    return count >= 2 && ((text[0] == '\0') != (text[1] == '\0') ||
                          memcmp(text, "\xff\xfe", 2) == 0 || memcmp(text, "\xfe\xff", 2) == 0);
}

static size_t utf16_copy(char *out, const char *text, size_t count)
{
    const size_t high =
        text[1] == '\0' || text[0] == '\xff' ? 1 : 0; /* the place of the high byte */
    const size_t begin = text[0] == '\xff' || text[0] == '\xfe' ? 2 : 0;
    size_t used = 0;
    for (size_t at = begin; at + 1 < count; at += 2)
        out[used++] = text[at + high] == '\0' ? text[at + 1 - high] : '?';
    return used;
}

/* ---- escape sequences ---- */

/* Returns the length of "[31m" at text[left], or 0. */
static size_t colour_length(const char *text, size_t left)
{
    size_t at = 1;
    if (left == 0 || text[0] != '[')
        return 0;
    while (at < left && at < SEQUENCE_BYTES_MAX && (is_digit(text[at]) || text[at] == ';'))
        at++;
    return at > 1 && at < left && text[at] == 'm' ? at + 1 : 0;
}

/* Returns the length of the sequence that begins with the ESC at text[left]: parameters or a title,
 * and their end. */
static size_t escape_length(const char *text, size_t left)
{
    const char kind = left > 1 ? text[1] : '\0';
    const bool title = kind == ']', parameters = kind == '[';
    const char last = parameters ? '@' : '0'; /* the first of the characters that end a sequence */
    size_t at = title || parameters ? 2 : 1;
    while (at < left && at < SEQUENCE_BYTES_MAX && text[at] >= ' ' && (title || text[at] < last))
        at++;
    return at +
           (at < left && (title ? text[at] == '\a' : text[at] >= last && text[at] <= '~') ? 1 : 0);
}

/* Returns the length of an escape sequence at text[left], or 0. */
static size_t sequence_length(const char *text, size_t left)
{
    static const char *const spelled[] = {"\\x1b", "\\x1B", "\\u001b", "\\u001B",
                                          "\\033", "\\e",   "^[",      ""};
    if (text[0] == '\x1b')
        return escape_length(text, left);
    if (text[0] != '\\' && text[0] != '^' && text[0] != '[')
        return 0;
    for (size_t i = 0; i < sizeof spelled / sizeof spelled[0]; i++) {
        const size_t length = strlen(spelled[i]);
        const size_t colour = left > length && memcmp(text, spelled[i], length) == 0
                                  ? colour_length(text + length, left - length)
                                  : 0;
        if (colour > 0)
            return length + colour;
    }
    return 0;
}

size_t oom_text_plain(char *out, const char *text, size_t count)
{
    size_t used = 0, at = 0;
    if (is_utf16(text, count)) {
        count = utf16_copy(out, text, count);
        text = out; /* the loop below never writes ahead of what it reads */
    }
    while (at < count) {
        const size_t skipped = sequence_length(text + at, count - at);
        if (skipped == 0)
            out[used++] = text[at];
        at += skipped > 0 ? skipped : 1;
    }
    return used;
}

/* ---- prefixes ---- */

static size_t digits_at(const char *text, size_t left)
{
    size_t count = 0;
    while (count < left && is_digit(text[count]))
        count++;
    return count;
}

size_t oom_text_prefix(const char *first, size_t count, const char *line, size_t left)
{
    size_t a = 0, b = 0, common = 0;
    while (a < count && b < left) {
        const size_t digits = digits_at(first + a, count - a),
                     others = digits_at(line + b, left - b);
        if ((digits == 0) != (others == 0) || (digits == 0 && first[a] != line[b]))
            break;
        if (digits == 0 && !is_word(line[b]))
            common = b + 1;
        a += digits > 0 ? digits : 1;
        b += digits > 0 ? others : 1;
    }
    return common;
}
