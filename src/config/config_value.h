/* Values of the configuration language: Python's None, bool, int, float and str, and their
 * arithmetic.
 *
 * Integers have 64 bits.  Overflow is an error, and so is a float that is not finite.
 */
#ifndef GPT_TRAIN_CONFIG_CONFIG_VALUE_H
#define GPT_TRAIN_CONFIG_CONFIG_VALUE_H

#include "base/status.h"

enum config_value_type {
    CONFIG_VALUE_NONE,
    CONFIG_VALUE_BOOL,
    CONFIG_VALUE_INT,
    CONFIG_VALUE_REAL,
    CONFIG_VALUE_STRING,
};

struct config_value {
    enum config_value_type type;
    int64_t integer;  /* int, and 0 or 1 for bool */
    double real;      /* float */
    const char *text; /* str: borrowed, zero-terminated, no zero byte inside */
};

enum config_operator {
    CONFIG_OPERATOR_ADD,
    CONFIG_OPERATOR_SUBTRACT,
    CONFIG_OPERATOR_MULTIPLY,
    CONFIG_OPERATOR_DIVIDE,
    CONFIG_OPERATOR_FLOOR_DIVIDE,
    CONFIG_OPERATOR_MODULO,
    CONFIG_OPERATOR_POWER,
};

/* Returns Python's name of the type, for messages: "None", "bool", "int", "float" or "str". */
const char *config_value_type_name(enum config_value_type type);

/* Computes out = left OP right for numbers, with Python's rules: bool counts as int, `/` gives a
 * float, `//` rounds down, `%` takes the divisor's sign, int ** negative int is a float.  `out` may
 * be one of the operands.  Returns NULL, or what is wrong, for the caller's message. */
const char *config_value_binary(enum config_operator op, const struct config_value *left,
                                const struct config_value *right, struct config_value *out);
/* Computes unary plus (ADD) and minus (SUBTRACT), with the same errors. */
const char *config_value_unary(enum config_operator op, const struct config_value *in,
                               struct config_value *out);

/* Writes Python's repr() of a finite float: the shortest digits that parse back to it ("6e-05",
 * "600.0"). */
#define CONFIG_REAL_TEXT_MAX 40
char *config_real_text(char text[static CONFIG_REAL_TEXT_MAX], double value);
#define CONFIG_REAL_TEXT(value) config_real_text((char[CONFIG_REAL_TEXT_MAX]){0}, value)

/* Writes a value as a Python literal, cut with "...'".  Returns `out`. */
#define CONFIG_VALUE_TEXT_MAX 80
char *config_value_text(char out[static CONFIG_VALUE_TEXT_MAX], const struct config_value *value);
#define CONFIG_VALUE_TEXT(value) config_value_text((char[CONFIG_VALUE_TEXT_MAX]){0}, value)

#endif
