/* Arithmetic and text of the configuration language's values.
 *
 * Integers stay in int64_t and no operation overflows unnoticed; floats are computed in double
 * and rejected when the result is not finite.  The reader joins strings, because that needs its
 * storage.
 */
#include "config/config_value.h"

#include <math.h>

static const char too_large[] = "the result does not fit a 64-bit integer";
static const char zero_divisor[] = "division by zero";

const char *config_value_type_name(enum config_value_type type)
{
    static const char *const names[] = {"None", "bool", "int", "float", "str"};
    assert((size_t)type < sizeof names / sizeof names[0]);
    return names[type];
}

static bool int_power(int64_t base, int64_t exponent, int64_t *out)
{
    int64_t result = 1;
    assert(exponent >= 0);
    /* Square and multiply, from the lowest bit of the exponent: at most 63 rounds. */
    for (; exponent > 0; exponent /= 2) {
        if (exponent % 2 != 0 && __builtin_mul_overflow(result, base, &result))
            return false;
        if (exponent > 1 && __builtin_mul_overflow(base, base, &base))
            return false;
    }
    *out = result;
    return true;
}

static const char *int_binary(enum config_operator op, int64_t a, int64_t b, int64_t *out)
{
    const bool divides = op == CONFIG_OPERATOR_FLOOR_DIVIDE || op == CONFIG_OPERATOR_MODULO;
    bool fits = true;
    if (divides && b == 0)
        return zero_divisor;
    if (op == CONFIG_OPERATOR_ADD) {
        fits = !__builtin_add_overflow(a, b, out);
    } else if (op == CONFIG_OPERATOR_SUBTRACT) {
        fits = !__builtin_sub_overflow(a, b, out);
    } else if (op == CONFIG_OPERATOR_MULTIPLY) {
        fits = !__builtin_mul_overflow(a, b, out);
    } else if (op == CONFIG_OPERATOR_POWER) {
        fits = int_power(a, b, out);
    } else if (a == INT64_MIN && b == -1) {
        fits = false;
    } else { /* rounded down */
        const int64_t quotient = a / b - (a % b != 0 && (a < 0) != (b < 0));
        *out = op == CONFIG_OPERATOR_MODULO ? a - quotient * b : quotient;
    }
    return fits ? NULL : too_large;
}

static const char *real_binary(enum config_operator op, double a, double b, double *out)
{
    const bool divides = op == CONFIG_OPERATOR_DIVIDE || op == CONFIG_OPERATOR_FLOOR_DIVIDE ||
                         op == CONFIG_OPERATOR_MODULO;
    if (b == 0.0 && divides)
        return zero_divisor;
    double modulo = divides ? fmod(a, b) : 0.0;
    if (modulo != 0.0 && (modulo < 0.0) != (b < 0.0))
        modulo += b;
    *out = op == CONFIG_OPERATOR_ADD            ? a + b
           : op == CONFIG_OPERATOR_SUBTRACT     ? a - b
           : op == CONFIG_OPERATOR_MULTIPLY     ? a * b
           : op == CONFIG_OPERATOR_DIVIDE       ? a / b
           : op == CONFIG_OPERATOR_FLOOR_DIVIDE ? floor((a - modulo) / b + 0.5)
           : op == CONFIG_OPERATOR_MODULO       ? modulo
                                                : pow(a, b);
    return isfinite(*out) ? NULL : "the result is not a finite number";
}

static bool value_is_number(const struct config_value *value)
{
    return value->type == CONFIG_VALUE_BOOL || value->type == CONFIG_VALUE_INT ||
           value->type == CONFIG_VALUE_REAL;
}

static double value_as_real(const struct config_value *value)
{
    return value->type == CONFIG_VALUE_REAL ? value->real : (double)value->integer;
}

const char *config_value_binary(enum config_operator op, const struct config_value *left,
                                const struct config_value *right, struct config_value *out)
{
    const bool real = left->type == CONFIG_VALUE_REAL || right->type == CONFIG_VALUE_REAL ||
                      op == CONFIG_OPERATOR_DIVIDE ||
                      (op == CONFIG_OPERATOR_POWER && right->integer < 0);
    struct config_value result = {.type = real ? CONFIG_VALUE_REAL : CONFIG_VALUE_INT};
    const char *why = NULL;
    assert(op <= CONFIG_OPERATOR_POWER);
    if (!value_is_number(left) || !value_is_number(right))
        return "arithmetic is for numbers only";
    if (real)
        why = real_binary(op, value_as_real(left), value_as_real(right), &result.real);
    else
        why = int_binary(op, left->integer, right->integer, &result.integer);
    if (why == NULL)
        *out = result;
    return why;
}

const char *config_value_unary(enum config_operator op, const struct config_value *in,
                               struct config_value *out)
{
    /* Multiplying by -1 negates a float zero, as Python does; subtracting from 0 would not. */
    const struct config_value other = {.type = CONFIG_VALUE_INT,
                                       .integer = op == CONFIG_OPERATOR_SUBTRACT ? -1 : 0};
    return config_value_binary(op == CONFIG_OPERATOR_SUBTRACT ? CONFIG_OPERATOR_MULTIPLY
                                                              : CONFIG_OPERATOR_ADD,
                               in, &other, out);
}

char *config_real_text(char text[static CONFIG_REAL_TEXT_MAX], double value)
{
    int precision = 0;
    assert(isfinite(value));
    /* 17 significant digits always parse back.  The program stays in the "C" locale, so the decimal
     * point is '.'. */
    do {
        snprintf(text, CONFIG_REAL_TEXT_MAX, "%.*e", precision, value);
    } while (strtod(text, NULL) != value && ++precision <= 16);
    const int exponent = (int)strtol(strchr(text, 'e') + 1, NULL, 10);
    if (exponent >= -4 && exponent < 16) /* as repr() does */
        snprintf(text, CONFIG_REAL_TEXT_MAX, "%.*f",
                 precision > exponent ? precision - exponent : 1, value);
    return text;
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

/* Writes `text` in single quotes, cut at `size` bytes (at least 8) with "...'". */
static void text_quote(char *out, size_t size, const char *text)
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
}

char *config_value_text(char out[static CONFIG_VALUE_TEXT_MAX], const struct config_value *value)
{
    if (value->type == CONFIG_VALUE_STRING)
        text_quote(out, CONFIG_VALUE_TEXT_MAX, value->text);
    else if (value->type == CONFIG_VALUE_REAL)
        snprintf(out, CONFIG_VALUE_TEXT_MAX, "%s", CONFIG_REAL_TEXT(value->real));
    else if (value->type == CONFIG_VALUE_INT)
        snprintf(out, CONFIG_VALUE_TEXT_MAX, "%" PRId64, value->integer);
    else
        snprintf(out, CONFIG_VALUE_TEXT_MAX, "%s",
                 value->type == CONFIG_VALUE_NONE ? "None"
                 : value->integer != 0            ? "True"
                                                  : "False");
    return out;
}
