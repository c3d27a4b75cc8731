/* The lexer of the configuration language.
 *
 * It scans the text once and never reads past `count`; a zero byte is an error like any other stray
 * byte.  Numbers are converted without their prefix and underscores.  String prefixes other than f
 * (b'', r''), imaginary numbers and names outside ASCII are rejected: nanoGPT's files do not use
 * them.
 */
#include "config/config_lex.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>

#include "base/utf8.h"
#include "config/config_value.h"

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* The program stays in the "C" locale: letters are those of ASCII. */
static bool is_name_part(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

/* Returns the value of a hexadecimal digit, or 99. */
static int hex_digit(char c)
{
    return is_digit(c) ? c - '0' : isxdigit((unsigned char)c) ? (c | 0x20) - 'a' + 10 : 99;
}

/* Returns the byte `ahead` bytes after the position, or 0 beyond the end. */
static char peek(const struct config_lex *lex, size_t ahead)
{
    return ahead < lex->count - lex->position ? lex->text[lex->position + ahead] : '\0';
}

static bool at_end(const struct config_lex *lex)
{
    return lex->position >= lex->count;
}

static bool at_newline(const struct config_lex *lex)
{
    return peek(lex, 0) == '\n' || peek(lex, 0) == '\r';
}

/* Steps over \n, \r\n or \r. */
static void take_newline(struct config_lex *lex)
{
    lex->position += peek(lex, 0) == '\r' && peek(lex, 1) == '\n' ? 2 : 1;
    lex->line_start = lex->position;
    if (lex->line < INT32_MAX)
        lex->line++;
}

void config_lex_begin(struct config_lex *lex, const char *text, size_t count, char *pool,
                      size_t pool_size)
{
    const size_t mark = count >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0 ? 3 : 0;
    *lex = (struct config_lex){.text = text,
                               .count = count,
                               .position = mark,
                               .line_start = mark,
                               .line = 1,
                               .fresh = true,
                               .pool = pool,
                               .pool_size = pool_size};
}

char *config_lex_reserve(struct config_lex *lex, size_t count)
{
    char *out = lex->pool + lex->pool_used;
    assert(lex->pool_used <= lex->pool_size);
    if (count >= lex->pool_size - lex->pool_used)
        return NULL;
    lex->pool_used += count + 1;
    out[count] = '\0';
    return out;
}

bool config_token_is(const struct config_token *token, const char *text)
{
    return (token->type == CONFIG_TOKEN_NAME || token->type == CONFIG_TOKEN_MARK) &&
           strlen(text) == token->length && memcmp(token->start, text, token->length) == 0;
}

/* Skips blanks, comments, line continuations and, inside brackets, newlines. */
static void skip_blank(struct config_lex *lex)
{
    while (!at_end(lex)) {
        char c = peek(lex, 0);
        if (c == ' ' || c == '\t' || c == '\f') {
            lex->position++;
        } else if (c == '#') {
            while (!at_end(lex) && !at_newline(lex))
                lex->position++;
        } else if (c == '\\' && (peek(lex, 1) == '\n' || peek(lex, 1) == '\r')) {
            lex->position++;
            take_newline(lex);
        } else if (at_newline(lex) && lex->depth > 0) {
            take_newline(lex);
        } else {
            break;
        }
    }
}

/* Turns the token into a bad one. */
static void token_spoil(struct config_token *token, const char *message)
{
    token->type = CONFIG_TOKEN_BAD;
    token->message = message;
}

/* ---- numbers ---- */

#define NUMBER_LENGTH_MAX 60

/* Sets the value of a number's text without prefix and underscores, whose characters were `good` so
 * far. */
static void number_set(struct config_token *token, const char *text, int base, bool real, bool good)
{
    char *end;
    errno = 0;
    if (real)
        token->value = (struct config_value){.type = CONFIG_VALUE_REAL, .real = strtod(text, &end)};
    else
        token->value =
            (struct config_value){.type = CONFIG_VALUE_INT, .integer = strtoll(text, &end, base)};
    const bool zeros =
        !real && base == 10 && text[0] == '0' && text[strspn(text, "0")] != '\0'; /* as in 012 */
    if (!good || zeros || text[0] == '\0' || *end != '\0')
        token_spoil(token, "this is not a number");
    else if (real && !isfinite(token->value.real))
        token_spoil(token, "this number is too large for a float");
    else if (!real && errno == ERANGE)
        token_spoil(token, "this integer does not fit 64 bits");
}

/* Reads everything that may belong to a number: letters, digits, points, and a sign after an
 * exponent's e.  An underscore may stand between two digits, and after the prefix. */
static void lex_number(struct config_lex *lex, struct config_token *token)
{
    const char prefix = peek(lex, 0) == '0' ? (char)(peek(lex, 1) | 0x20) : '\0';
    const int base = prefix == 'x' ? 16 : prefix == 'o' ? 8 : prefix == 'b' ? 2 : 10;
    char text[NUMBER_LENGTH_MAX + 1], before = '0';
    size_t used = 0;
    bool real = false, good = true;
    token->type = CONFIG_TOKEN_NUMBER;
    lex->position += base == 10 ? 0 : 2;
    for (char c = peek(lex, 0);
         is_name_part(c) || c == '.' || (real && (before | 0x20) == 'e' && (c == '+' || c == '-'));
         c = peek(lex, 0)) {
        lex->position++;
        real = real || (base == 10 && (c == '.' || (c | 0x20) == 'e'));
        if (c == '_')
            good = good && hex_digit(before) < base && hex_digit(peek(lex, 0)) < base;
        else if (used == NUMBER_LENGTH_MAX || (base != 10 && hex_digit(c) >= base))
            good = false;
        else
            text[used++] = c;
        before = c;
    }
    text[used] = '\0';
    number_set(token, text, base, real, good);
}

/* ---- strings ---- */

/* Adds a byte to the pool; one byte is reserved for the final zero.  lex_string() reports a full
 * pool. */
static void put_byte(struct config_lex *lex, unsigned byte)
{
    if (lex->pool_used + 1 < lex->pool_size)
        lex->pool[lex->pool_used++] = (char)(unsigned char)byte;
    else
        lex->pool_full = true;
}

/* Reads the digits of \xHH, \uHHHH, \UHHHHHHHH or \OOO.  Returns NULL, or an error message. */
static const char *string_number(struct config_lex *lex, int base, int count_min, int count_max)
{
    uint32_t code = 0;
    int count = 0;
    for (; count < count_max && hex_digit(peek(lex, 0)) < base; count++, lex->position++)
        code = code * (uint32_t)base + (uint32_t)hex_digit(peek(lex, 0));
    if (count < count_min)
        return "an escape in this string lacks digits";
    if (code == 0 || !utf8_is_scalar(code))
        return "an escape in this string names no usable character";
    char bytes[4];
    const size_t length = utf8_encode(code, bytes);
    for (size_t i = 0; i < length; i++)
        put_byte(lex, (unsigned char)bytes[i]);
    return NULL;
}

/* Reads an escape after its backslash.  Returns NULL, or an error message. */
static const char *string_escape(struct config_lex *lex)
{
    static const char names[] = "abfnrtv\\'\"";
    static const char bytes[] = "\a\b\f\n\r\t\v\\'\"";
    char c = peek(lex, 0);
    const char *found = c != '\0' ? strchr(names, c) : NULL;
    if (c >= '0' && c <= '7')
        return string_number(lex, 8, 1, 3);
    if (c == 'x' || c == 'u' || c == 'U') {
        int digits = c == 'x' ? 2 : c == 'u' ? 4 : 8;
        lex->position++;
        return string_number(lex, 16, digits, digits);
    }
    if (at_newline(lex)) {
        take_newline(lex);
    } else if (found == NULL) { /* Python keeps the backslash of an unknown escape. */
        put_byte(lex, '\\');
    } else {
        lex->position++;
        put_byte(lex, (unsigned char)bytes[found - names]);
    }
    return NULL;
}

/* Returns true within the text of an f-string, outside its braces. */
static bool in_format(const struct config_lex *lex)
{
    return lex->format_quote != 0 && !lex->format_inside;
}

/* Reads one character of a string.  Returns NULL, or an error message. */
static const char *string_character(struct config_lex *lex, bool triple)
{
    char c = peek(lex, 0);
    if (at_end(lex) || (at_newline(lex) && !triple))
        return "this string is never closed";
    if (at_newline(lex)) {
        take_newline(lex);
        put_byte(lex, '\n');
        return NULL;
    }
    lex->position++;
    if (c == '\\')
        return string_escape(lex);
    put_byte(lex, (unsigned char)c);
    if (!in_format(lex) || (c != '{' && c != '}'))
        return NULL;
    if (peek(lex, 0) != c)
        return "a brace in an f-string is written twice";
    lex->position++;
    return NULL;
}

static bool at_end_of_string(const struct config_lex *lex, char quote, bool triple)
{
    return peek(lex, 0) == quote && (!triple || (peek(lex, 1) == quote && peek(lex, 2) == quote));
}

/* Reads a string after its opening quotes, or the next piece of an f-string. */
static void lex_piece(struct config_lex *lex, struct config_token *token, char quote, bool triple)
{
    const size_t begin = lex->pool_used;
    const bool format = in_format(lex);
    const char *problem = NULL;
    token->type = CONFIG_TOKEN_STRING;
    while (problem == NULL && !lex->pool_full && !token->open &&
           !at_end_of_string(lex, quote, triple)) {
        token->open = format && peek(lex, 0) == '{' && peek(lex, 1) != '{';
        if (!token->open)
            problem = string_character(lex, triple);
    }
    const bool failed = problem != NULL || lex->pool_full || lex->pool_used >= lex->pool_size;
    if (format && (failed || !token->open))
        lex->format_quote = 0;
    if (failed) {
        token_spoil(token, problem != NULL ? problem : "the strings of this file are too long");
        lex->pool_used = begin;
        lex->pool_full = token->open = false;
        return;
    }
    lex->format_inside = lex->format_inside || token->open;
    lex->position += triple && !token->open ? 3 : 1;
    lex->pool[lex->pool_used++] = '\0';
    token->value = (struct config_value){.type = CONFIG_VALUE_STRING, .text = lex->pool + begin};
}

static void lex_string(struct config_lex *lex, struct config_token *token, bool format)
{
    const char quote = peek(lex, 0);
    const bool triple = peek(lex, 1) == quote && peek(lex, 2) == quote;
    lex->position += triple ? 3 : 1;
    if (format) {
        lex->format_quote = quote;
        lex->format_triple = triple;
    }
    lex_piece(lex, token, quote, triple);
}

/* ---- names and marks ---- */

/* Returns true if the name up to the position is the prefix of an f-string. */
static bool is_format_prefix(const struct config_token *token, const struct config_lex *lex)
{
    return lex->text + lex->position == token->start + 1 && (*token->start | 0x20) == 'f';
}

static void lex_name(struct config_lex *lex, struct config_token *token)
{
    token->type = CONFIG_TOKEN_NAME;
    while (is_name_part(peek(lex, 0)))
        lex->position++;
    if (peek(lex, 0) != '\'' && peek(lex, 0) != '"')
        return;
    if (is_format_prefix(token, lex) && lex->format_quote == 0)
        lex_string(lex, token, true);
    else
        token_spoil(token, "a string with this prefix is not supported");
}

static void lex_mark(struct config_lex *lex, struct config_token *token)
{
    static const char *const pairs[] = {"**", "//", "==", "!=", "<=", ">=", "->",
                                        ":=", "+=", "-=", "*=", "/=", "%="};
    char c = peek(lex, 0);
    token->type = CONFIG_TOKEN_MARK;
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        if (c == pairs[i][0] && peek(lex, 1) == pairs[i][1]) {
            lex->position += 2;
            return;
        }
    }
    lex->position++;
    if (c == '\0' || strchr("+-*/%()[]{}=,.:;<>!&|^~@", c) == NULL)
        token_spoil(token, "this character has no meaning here");
    /* Skip the continuation bytes of a character outside ASCII. */
    while (((unsigned char)c & 0x80) != 0 && ((unsigned char)peek(lex, 0) & 0xC0) == 0x80)
        lex->position++;
    if (c == '(' || c == '[' || c == '{')
        lex->depth++;
    if (c == '}' && lex->format_inside)
        lex->format_inside = false;
    else if ((c == ')' || c == ']' || c == '}') && lex->depth > 0)
        lex->depth--;
}

void config_lex_next(struct config_lex *lex, struct config_token *token)
{
    const bool piece = in_format(lex);
    if (!piece)
        skip_blank(lex);
    *token = (struct config_token){.start = lex->text + lex->position,
                                   .line = lex->line,
                                   .column = (int32_t)(lex->position - lex->line_start) + 1};
    token->indented = lex->fresh && token->column > 1;
    const char c = peek(lex, 0);
    if (piece) {
        lex_piece(lex, token, lex->format_quote, lex->format_triple);
    } else if (at_end(lex)) {
        token->type = CONFIG_TOKEN_END;
    } else if (at_newline(lex)) {
        lex->format_quote = 0; /* of braces that are never closed */
        lex->format_inside = false;
        token->type = CONFIG_TOKEN_NEWLINE;
        take_newline(lex);
    } else if (is_digit(c) || (c == '.' && is_digit(peek(lex, 1)))) {
        lex_number(lex, token);
    } else if (c == '\'' || c == '"') {
        lex_string(lex, token, false);
    } else if (is_name_part(c)) {
        lex_name(lex, token);
    } else {
        lex_mark(lex, token);
    }
    token->length = (size_t)(lex->text + lex->position - token->start);
    lex->fresh = token->type == CONFIG_TOKEN_NEWLINE;
}

/* ---- the command line ---- */

bool config_lex_literal(const char *text, char *pool, size_t pool_size, struct config_value *out)
{
    struct config_lex lex;
    struct config_token token;
    bool negative = text[0] == '-';
    bool sign = negative || text[0] == '+';
    size_t count = strlen(text);
    /* The token must span the whole text: no blanks, no second token. */
    config_lex_begin(&lex, sign ? text + 1 : text, sign ? count - 1 : count, pool, pool_size);
    config_lex_next(&lex, &token);
    if (token.start != lex.text || token.length != lex.count)
        return false;
    if (token.type != CONFIG_TOKEN_NUMBER && (token.type != CONFIG_TOKEN_STRING || sign))
        return false;
    if (negative &&
        config_value_unary(CONFIG_OPERATOR_SUBTRACT, &token.value, &token.value) != NULL)
        return false;
    *out = token.value;
    return true;
}
