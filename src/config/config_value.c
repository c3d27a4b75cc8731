/* Arithmetic and text of the configuration language's values.
 *
 * Integers stay in int64_t and every operation checks for overflow before it happens; floats are computed in double
 * and rejected when the result is not finite.  The reader joins strings, because that needs its storage.
 */
#include "config/config_value.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char too_large[] = "the result does not fit a 64-bit integer";
static const char zero_divisor[] = "division by zero";
static const char not_finite[] = "the result is not a finite number";

const char *config_value_type_name(enum config_value_type type)
{
    static const char *const names[] = {"None", "bool", "int", "float", "str"};
    assert((size_t)type < sizeof names / sizeof names[0]);
    return names[type];
}

static bool int_add(int64_t a, int64_t b, int64_t *out)
{
    if ((b > 0 && a > INT64_MAX - b) || (b < 0 && a < INT64_MIN - b))
        return false;
    *out = a + b;
    return true;
}

static bool int_multiply(int64_t a, int64_t b, int64_t *out)
{
    if (a == 0 || b == 0) {
        *out = 0;
        return true;
    }
    if ((a == -1 && b == INT64_MIN) || (b == -1 && a == INT64_MIN))
        return false;
    if (a > 0 ? (b > 0 ? a > INT64_MAX / b : b < INT64_MIN / a) : (b > 0 ? a < INT64_MIN / b : b < INT64_MAX / a))
        return false;
    *out = a * b;
    return true;
}

static bool int_power(int64_t base, int64_t exponent, int64_t *out)
{
    int64_t result = 1;

    assert(exponent >= 0);
    /* Square and multiply, from the lowest bit of the exponent: at most 63 rounds. */
    for (; exponent > 0; exponent /= 2) {
        if (exponent % 2 != 0 && !int_multiply(result, base, &result))
            return false;
        if (exponent > 1 && !int_multiply(base, base, &base))
            return false;
    }
    *out = result;
    return true;
}

/* Divides and rounds down.  b must not be 0, nor -1 if a is INT64_MIN. */
static int64_t int_floor_divide(int64_t a, int64_t b)
{
    int64_t quotient = a / b;
    return a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

static enum gt_status int_divide(enum config_operator op, int64_t a, int64_t b, int64_t *out, const char **why)
{
    if (b == 0) {
        *why = zero_divisor;
        return GT_USAGE;
    }
    if (a == INT64_MIN && b == -1) {
        *why = too_large;
        return GT_USAGE;
    }
    *out = int_floor_divide(a, b);
    if (op == CONFIG_OPERATOR_MODULO)
        *out = a - *out * b;
    return GT_OK;
}

static enum gt_status int_binary(enum config_operator op, int64_t a, int64_t b, int64_t *out, const char **why)
{
    bool fits = true;

    if (op == CONFIG_OPERATOR_FLOOR_DIVIDE || op == CONFIG_OPERATOR_MODULO)
        return int_divide(op, a, b, out, why);
    if (op == CONFIG_OPERATOR_ADD)
        fits = int_add(a, b, out);
    else if (op == CONFIG_OPERATOR_SUBTRACT)
        fits = b == INT64_MIN ? a < 0 && int_add(a + 1, INT64_MAX, out) : int_add(a, -b, out);
    else if (op == CONFIG_OPERATOR_MULTIPLY)
        fits = int_multiply(a, b, out);
    else
        fits = int_power(a, b, out);
    if (!fits)
        *why = too_large;
    return fits ? GT_OK : GT_USAGE;
}

static double real_modulo(double a, double b)
{
    double remainder = fmod(a, b);
    if (remainder != 0.0 && (remainder < 0.0) != (b < 0.0))
        remainder += b;
    return remainder;
}

static double real_apply(enum config_operator op, double a, double b)
{
    switch (op) {
    case CONFIG_OPERATOR_ADD:
        return a + b;
    case CONFIG_OPERATOR_SUBTRACT:
        return a - b;
    case CONFIG_OPERATOR_MULTIPLY:
        return a * b;
    case CONFIG_OPERATOR_DIVIDE:
        return a / b;
    case CONFIG_OPERATOR_FLOOR_DIVIDE:
        return floor((a - real_modulo(a, b)) / b + 0.5);
    case CONFIG_OPERATOR_MODULO:
        return real_modulo(a, b);
    default:
        return pow(a, b);
    }
}

static bool operator_divides(enum config_operator op)
{
    return op == CONFIG_OPERATOR_DIVIDE || op == CONFIG_OPERATOR_FLOOR_DIVIDE || op == CONFIG_OPERATOR_MODULO;
}

static enum gt_status real_binary(enum config_operator op, double a, double b, double *out, const char **why)
{
    double result;

    if (b == 0.0 && operator_divides(op)) {
        *why = zero_divisor;
        return GT_USAGE;
    }
    result = real_apply(op, a, b);
    if (!isfinite(result)) {
        *why = not_finite;
        return GT_USAGE;
    }
    *out = result;
    return GT_OK;
}

static bool value_is_number(const struct config_value *value)
{
    return value->type == CONFIG_VALUE_BOOL || value->type == CONFIG_VALUE_INT || value->type == CONFIG_VALUE_REAL;
}

static double value_as_real(const struct config_value *value)
{
    return value->type == CONFIG_VALUE_REAL ? value->real : (double)value->integer;
}

enum gt_status config_value_binary(enum config_operator op, const struct config_value *left,
                                   const struct config_value *right, struct config_value *out, const char **why)
{
    bool real = left->type == CONFIG_VALUE_REAL || right->type == CONFIG_VALUE_REAL;
    struct config_value result = {CONFIG_VALUE_INT, 0, 0.0, NULL};

    assert(op <= CONFIG_OPERATOR_POWER);
    if (!value_is_number(left) || !value_is_number(right)) {
        *why = "arithmetic is for numbers only";
        return GT_USAGE;
    }
    if (op == CONFIG_OPERATOR_DIVIDE || (op == CONFIG_OPERATOR_POWER && right->integer < 0))
        real = true;
    if (real) {
        result.type = CONFIG_VALUE_REAL;
        TRY(real_binary(op, value_as_real(left), value_as_real(right), &result.real, why));
    } else {
        TRY(int_binary(op, left->integer, right->integer, &result.integer, why));
    }
    *out = result;
    return GT_OK;
}

enum gt_status config_value_unary(enum config_operator op, const struct config_value *in, struct config_value *out,
                                  const char **why)
{
    const struct config_value zero = {CONFIG_VALUE_INT, 0, 0.0, NULL};
    const struct config_value minus_one = {CONFIG_VALUE_INT, -1, 0.0, NULL};

    assert(op == CONFIG_OPERATOR_PLUS || op == CONFIG_OPERATOR_MINUS);
    if (op == CONFIG_OPERATOR_PLUS)
        return config_value_binary(CONFIG_OPERATOR_ADD, in, &zero, out, why);
    /* Multiplying by -1 negates a float zero, as Python does; subtracting from 0 would not. */
    return config_value_binary(CONFIG_OPERATOR_MULTIPLY, in, &minus_one, out, why);
}

/* Formats `digits` ("123"), where `exponent` is that of the first digit, in the notation that repr() would choose. */
static void real_layout(char text[static CONFIG_REAL_TEXT_MAX], const char *digits, int exponent, bool negative)
{
    int count = (int)strlen(digits);
    const char *sign = negative ? "-" : "";

    assert(count >= 1 && count <= 17);
    if (exponent < -4 || exponent >= 16)
        snprintf(text, CONFIG_REAL_TEXT_MAX, "%s%c%s%se%+03d", sign, digits[0], count > 1 ? "." : "", digits + 1,
                 exponent);
    else if (exponent < 0)
        snprintf(text, CONFIG_REAL_TEXT_MAX, "%s0.%.*s%s", sign, -exponent - 1, "0000", digits);
    else if (count <= exponent + 1)
        snprintf(text, CONFIG_REAL_TEXT_MAX, "%s%s%.*s.0", sign, digits, exponent + 1 - count, "0000000000000000");
    else
        snprintf(text, CONFIG_REAL_TEXT_MAX, "%s%.*s.%s", sign, exponent + 1, digits, digits + exponent + 1);
}

char *config_real_text(char text[static CONFIG_REAL_TEXT_MAX], double value)
{
    char shortest[40];
    char digits[20];
    size_t count = 0;
    int precision = 0;

    assert(isfinite(value));
    /* 17 significant digits always parse back.  The program stays in the "C" locale, so the decimal point is '.'. */
    for (precision = 0; precision <= 16; precision++) {
        snprintf(shortest, sizeof shortest, "%.*e", precision, fabs(value));
        if (strtod(shortest, NULL) == fabs(value))
            break;
    }
    for (const char *c = shortest; *c != 'e'; c++)
        if (*c != '.')
            digits[count++] = *c;
    digits[count] = '\0';
    real_layout(text, digits, (int)strtol(strchr(shortest, 'e') + 1, NULL, 10), signbit(value) != 0);
    return text;
}

/* Returns the number of bytes that follow a first byte of UTF-8, or -1.  *low and *high bound the second byte. */
static int utf8_followers(unsigned char first, unsigned char *low, unsigned char *high)
{
    *low = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
    *high = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
    if (first < 0x80)
        return 0;
    if (first < 0xC2 || first > 0xF4)
        return -1;
    return first < 0xE0 ? 1 : first < 0xF0 ? 2 : 3;
}

bool config_text_is_utf8(const char *text)
{
    const unsigned char *at = (const unsigned char *)text;
    unsigned char low = 0;
    unsigned char high = 0;

    while (*at != 0) {
        int followers = utf8_followers(*at++, &low, &high);
        if (followers < 0)
            return false;
        for (; followers > 0; followers--, at++) {
            if (*at < low || *at > high)
                return false;
            low = 0x80;
            high = 0xBF;
        }
    }
    return true;
}

static void quote_byte(char piece[static 5], char c)
{
    if (c == '\n')
        snprintf(piece, 5, "\\n");
    else if (c == '\t')
        snprintf(piece, 5, "\\t");
    else if (c == '\'' || c == '\\')
        snprintf(piece, 5, "\\%c", c);
    else if ((unsigned char)c < 32 || c == 127)
        snprintf(piece, 5, "\\x%02x", (unsigned)(unsigned char)c);
    else
        snprintf(piece, 5, "%c", c);
}

char *config_text_quote(char *out, size_t size, const char *text)
{
    size_t used = 1;
    char piece[5];

    assert(size >= 8);
    out[0] = '\'';
    for (; *text != '\0'; text++) {
        quote_byte(piece, *text);
        /* Reserve room for "...'" and the zero. */
        if (used + strlen(piece) + 5 > size)
            break;
        memcpy(out + used, piece, strlen(piece));
        used += strlen(piece);
    }
    snprintf(out + used, size - used, "%s'", *text != '\0' ? "..." : "");
    return out;
}

char *config_value_text(char *out, size_t size, const struct config_value *value)
{
    char real[CONFIG_REAL_TEXT_MAX];

    switch (value->type) {
    case CONFIG_VALUE_NONE:
        snprintf(out, size, "None");
        break;
    case CONFIG_VALUE_BOOL:
        snprintf(out, size, "%s", value->integer != 0 ? "True" : "False");
        break;
    case CONFIG_VALUE_INT:
        snprintf(out, size, "%" PRId64, value->integer);
        break;
    case CONFIG_VALUE_REAL:
        snprintf(out, size, "%s", config_real_text(real, value->real));
        break;
    case CONFIG_VALUE_STRING:
        snprintf(out, size, "%s", value->text);
        break;
    }
    return out;
}
