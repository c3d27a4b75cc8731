/* Tests of src/config/config_value.c: Python's arithmetic, its limits, and repr(). */
#include "config/config_key.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "config/config_value.h"
#include "tests/unit/unit_main.h"

static struct config_value number(int64_t integer)
{
    return (struct config_value){CONFIG_VALUE_INT, integer, 0.0, NULL};
}

static struct config_value real(double value)
{
    return (struct config_value){CONFIG_VALUE_REAL, 0, value, NULL};
}

/* Expects that a OP b of integers gives the integer `expected`. */
static void gives(enum config_operator op, int64_t a, int64_t b, int64_t expected)
{
    struct config_value left = number(a);
    struct config_value right = number(b);
    struct config_value out = {CONFIG_VALUE_NONE, 0, 0.0, NULL};
    const char *why = config_value_binary(op, &left, &right, &out);
    ck_assert_msg(why == NULL, "%lld op %d %lld: %s", (long long)a, (int)op, (long long)b, why);
    ck_assert_int_eq(out.type, CONFIG_VALUE_INT);
    ck_assert_int_eq(out.integer, expected);
}

static void gives_real(enum config_operator op, struct config_value left, struct config_value right, double expected)
{
    struct config_value out = {CONFIG_VALUE_NONE, 0, 0.0, NULL};
    const char *why = config_value_binary(op, &left, &right, &out);
    ck_assert_msg(why == NULL, "%s", why);
    ck_assert_int_eq(out.type, CONFIG_VALUE_REAL);
    ck_assert_msg(out.real == expected, "%.17g is not %.17g", out.real, expected);
}

static void refuses(enum config_operator op, struct config_value left, struct config_value right, const char *words)
{
    struct config_value out = number(77);
    const char *why = config_value_binary(op, &left, &right, &out);
    ck_assert_msg(why != NULL && strstr(why, words) != NULL, "\"%s\" is not in \"%s\"", words, why);
    ck_assert_int_eq(out.integer, 77);
}

TEST(value_integers_follow_python)
{
    gives(CONFIG_OPERATOR_ADD, 5, -8, -3);
    gives(CONFIG_OPERATOR_SUBTRACT, 5, 8, -3);
    gives(CONFIG_OPERATOR_MULTIPLY, 5, 8, 40);
    gives(CONFIG_OPERATOR_FLOOR_DIVIDE, 7, 2, 3);
    gives(CONFIG_OPERATOR_FLOOR_DIVIDE, -7, 2, -4);
    gives(CONFIG_OPERATOR_FLOOR_DIVIDE, 7, -2, -4);
    gives(CONFIG_OPERATOR_FLOOR_DIVIDE, -8, -2, 4);
    gives(CONFIG_OPERATOR_MODULO, 7, 3, 1);
    gives(CONFIG_OPERATOR_MODULO, -7, 3, 2);
    gives(CONFIG_OPERATOR_MODULO, 7, -3, -2);
    gives(CONFIG_OPERATOR_POWER, 2, 10, 1024);
    gives(CONFIG_OPERATOR_POWER, 0, 0, 1);
    gives(CONFIG_OPERATOR_POWER, -2, 63, INT64_MIN);
    gives(CONFIG_OPERATOR_POWER, 1, INT64_MAX, 1);
    gives(CONFIG_OPERATOR_POWER, -1, INT64_MAX, -1);
}

TEST(value_integers_stop_at_64_bits)
{
    const char *large = "64-bit";
    gives(CONFIG_OPERATOR_ADD, INT64_MAX - 1, 1, INT64_MAX);
    gives(CONFIG_OPERATOR_SUBTRACT, -1, INT64_MIN, INT64_MAX);
    gives(CONFIG_OPERATOR_SUBTRACT, INT64_MIN, INT64_MIN, 0);
    gives(CONFIG_OPERATOR_MULTIPLY, INT64_MIN / 2, 2, INT64_MIN);
    refuses(CONFIG_OPERATOR_ADD, number(INT64_MAX), number(1), large);
    refuses(CONFIG_OPERATOR_ADD, number(INT64_MIN), number(-1), large);
    refuses(CONFIG_OPERATOR_SUBTRACT, number(0), number(INT64_MIN), large);
    refuses(CONFIG_OPERATOR_SUBTRACT, number(INT64_MIN), number(1), large);
    refuses(CONFIG_OPERATOR_MULTIPLY, number(INT64_MIN), number(-1), large);
    refuses(CONFIG_OPERATOR_MULTIPLY, number(-1), number(INT64_MIN), large);
    refuses(CONFIG_OPERATOR_MULTIPLY, number(INT64_C(1) << 32), number(INT64_C(1) << 31), large);
    refuses(CONFIG_OPERATOR_MULTIPLY, number(-(INT64_C(1) << 32)), number(-(INT64_C(1) << 31)), large);
    refuses(CONFIG_OPERATOR_FLOOR_DIVIDE, number(INT64_MIN), number(-1), large);
    refuses(CONFIG_OPERATOR_MODULO, number(INT64_MIN), number(-1), large);
    refuses(CONFIG_OPERATOR_POWER, number(2), number(63), large);
    refuses(CONFIG_OPERATOR_POWER, number(10), number(INT64_MAX), large);
}

TEST(value_division_and_power_give_floats)
{
    gives_real(CONFIG_OPERATOR_DIVIDE, number(7), number(2), 3.5);
    gives_real(CONFIG_OPERATOR_DIVIDE, number(8), number(2), 4.0);
    gives_real(CONFIG_OPERATOR_POWER, number(10), number(-1), 0.1);
    gives_real(CONFIG_OPERATOR_DIVIDE, real(6e-4), number(10), 6e-4 / 10);
    gives_real(CONFIG_OPERATOR_FLOOR_DIVIDE, real(-7.5), number(2), -4.0);
    gives_real(CONFIG_OPERATOR_MODULO, real(-7.5), number(2), 0.5);
    gives_real(CONFIG_OPERATOR_MULTIPLY, real(1.5), (struct config_value){CONFIG_VALUE_BOOL, 1, 0.0, NULL}, 1.5);
}

TEST(value_refusals)
{
    const struct config_value text = {CONFIG_VALUE_STRING, 0, 0.0, "x"};
    const struct config_value none = {CONFIG_VALUE_NONE, 0, 0.0, NULL};
    refuses(CONFIG_OPERATOR_DIVIDE, number(1), number(0), "division by zero");
    refuses(CONFIG_OPERATOR_FLOOR_DIVIDE, number(1), number(0), "division by zero");
    refuses(CONFIG_OPERATOR_MODULO, real(1.0), real(0.0), "division by zero");
    refuses(CONFIG_OPERATOR_MULTIPLY, real(1e300), real(1e300), "finite");
    refuses(CONFIG_OPERATOR_POWER, real(-1.0), real(0.5), "finite");
    refuses(CONFIG_OPERATOR_POWER, number(0), number(-1), "finite");
    refuses(CONFIG_OPERATOR_ADD, text, number(1), "numbers only");
    refuses(CONFIG_OPERATOR_ADD, number(1), none, "numbers only");
}

TEST(value_unary)
{
    struct config_value out = number(0);
    struct config_value in = number(INT64_MIN);
    ck_assert_ptr_nonnull(config_value_unary(CONFIG_OPERATOR_SUBTRACT, &in, &out));
    in = number(5);
    ck_assert_ptr_null(config_value_unary(CONFIG_OPERATOR_SUBTRACT, &in, &out));
    ck_assert_int_eq(out.integer, -5);
    in = real(0.0);
    ck_assert_ptr_null(config_value_unary(CONFIG_OPERATOR_SUBTRACT, &in, &out));
    ck_assert(signbit(out.real) != 0);
    in = (struct config_value){CONFIG_VALUE_BOOL, 1, 0.0, NULL};
    ck_assert_ptr_null(config_value_unary(CONFIG_OPERATOR_ADD, &in, &out));
    ck_assert_int_eq(out.type, CONFIG_VALUE_INT);
    ck_assert_int_eq(out.integer, 1);
}

TEST(value_repr_known)
{
    static const struct {
        double value;
        const char *text;
    } known[] = {
        {0.0, "0.0"},
        {-0.0, "-0.0"},
        {1.0, "1.0"},
        {600.0, "600.0"},
        {0.1, "0.1"},
        {6e-4, "0.0006"},
        {6e-5, "6e-05"},
        {1e-4, "0.0001"},
        {1e16, "1e+16"},
        {1e15, "1000000000000000.0"},
        {123456789012345680.0, "1.2345678901234568e+17"},
        {-2.5, "-2.5"},
        {1e100, "1e+100"},
        {5e-324, "5e-324"},
        {DBL_MAX, "1.7976931348623157e+308"},
        {1700000000.0, "1700000000.0"},
        {0.1 + 0.2, "0.30000000000000004"},
        {9999999999999998.0, "9999999999999998.0"},
    };
    char text[CONFIG_REAL_TEXT_MAX];
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        ck_assert_str_eq(config_real_text(text, known[i].value), known[i].text);
}

TEST(value_repr_reads_back)
{
    struct philox_key key = philox_key_make(unit_seed(), RNG_SAMPLE);
    char text[CONFIG_REAL_TEXT_MAX];
    for (uint32_t i = 0; i < 20000; i++) {
        struct philox_block block = philox4x32_10(key, (struct philox_block){{i, 0, 0, 0}});
        uint64_t bits = (uint64_t)block.word[0] << 32 | block.word[1];
        double value = 0.0;
        memcpy(&value, &bits, sizeof value);
        if (!isfinite(value))
            continue;
        ck_assert_msg(strtod(config_real_text(text, value), NULL) == value, "%.17g became %s", value, text);
    }
}

TEST(value_quoting)
{
    struct config_value value = {CONFIG_VALUE_STRING, 0, 0.0, "a\n\t'\\\x01"};
    char out[CONFIG_VALUE_TEXT_MAX], text[CONFIG_VALUE_TEXT_MAX];
    ck_assert_str_eq(config_value_text(out, &value), "'a\\n\\t\\'\\\\\\x01'");
    value.text = "";
    ck_assert_str_eq(config_value_text(out, &value), "''");
    memset(text, 'a', sizeof text);
    value.text = text;
    text[CONFIG_VALUE_TEXT_MAX - 6] = '\0'; /* leaves room for the quotes, "..." and the zero */
    config_value_text(out, &value);
    ck_assert_msg(strlen(out) == CONFIG_VALUE_TEXT_MAX - 4 && strstr(out, "aaa'") != NULL, "%s", out);
    strcpy(text + CONFIG_VALUE_TEXT_MAX - 6, "bc");
    config_value_text(out, &value);
    ck_assert_msg(strlen(out) == CONFIG_VALUE_TEXT_MAX - 1 && strstr(out, "aaa...'") != NULL, "%s", out);
}
