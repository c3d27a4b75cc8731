/* Tests of src/config/config_lex.c: tokens, positions, literals, and all kinds of malformed input. */
#include "config/config_lex.h"

#include <string.h>

#include "config/config_value.h"
#include "tests/unit/unit_main.h"

static char pool[4096];

/* Returns the kinds of all tokens of `text` as letters: N name, # number, S string, M mark, \n newline, ! bad. */
static const char *kinds(const char *text)
{
    static char out[128];
    static const char letters[] = ".\nN#SM!";
    struct config_lex lex;
    struct config_token token;
    size_t used = 0;
    config_lex_begin(&lex, text, strlen(text), pool, sizeof pool);
    for (config_lex_next(&lex, &token); token.type != CONFIG_TOKEN_END && used < 127; config_lex_next(&lex, &token))
        out[used++] = letters[token.type];
    out[used] = '\0';
    return out;
}

static struct config_token first(const char *text)
{
    struct config_lex lex;
    struct config_token token;
    config_lex_begin(&lex, text, strlen(text), pool, sizeof pool);
    config_lex_next(&lex, &token);
    return token;
}

TEST(lex_kinds)
{
    ck_assert_str_eq(kinds(""), "");
    ck_assert_str_eq(kinds("a = 1\n"), "NM#\n");
    ck_assert_str_eq(kinds("a=1 # = 2\r\nb='x'"), "NM#\nNMS");
    ck_assert_str_eq(kinds("a=(1+\n # c\n 2)\nb"), "NMM#M#M\nN");
    ck_assert_str_eq(kinds("a = 1 + \\\n 2\n"), "NM#M#\n");
    ck_assert_str_eq(kinds("a **b//c ;d"), "NMNMNMN");
    ck_assert_str_eq(kinds("\xEF\xBB\xBF"
                           "a"),
                     "N");
    ck_assert_str_eq(kinds("a\rb\r\nc\nd"), "N\nN\nN\nN");
    ck_assert_str_eq(kinds("'''x\ny''' \"\"\"z\"\"\""), "SS");
    ck_assert_str_eq(kinds("a $ b \xC3\xA9 ?"), "N!N!!");
    ck_assert_str_eq(kinds("f'x'"), "S");
    ck_assert_str_eq(kinds("f'x{a}{ b }' c b'x'"), "SNMSNMSN!S");
}

TEST(lex_positions)
{
    const char *text = "a = 1\n  bb = '''x\ny''' + c\n";
    static const struct {
        int line, column;
        bool indented;
    } expected[] = {{1, 1, false}, {1, 3, false}, {1, 5, false}, {1, 6, false}, {2, 3, true},
                    {2, 6, false}, {2, 8, false}, {3, 6, false}, {3, 8, false}, {3, 9, false}};
    struct config_lex lex;
    struct config_token token;
    config_lex_begin(&lex, text, strlen(text), pool, sizeof pool);
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) {
        config_lex_next(&lex, &token);
        ck_assert_msg(token.line == expected[i].line && token.column == expected[i].column &&
                          token.indented == expected[i].indented,
                      "token %zu is at %d:%d", i, (int)token.line, (int)token.column);
    }
    config_lex_next(&lex, &token);
    ck_assert_int_eq(token.type, CONFIG_TOKEN_END);
}

TEST(lex_numbers)
{
    static const struct {
        const char *text;
        int64_t value;
    } integers[] = {{"0", 0},
                    {"00", 0},
                    {"12", 12},
                    {"1_000_000", 1000000},
                    {"0x1F", 31},
                    {"0X_ff", 255},
                    {"0o17", 15},
                    {"0b101", 5},
                    {"9223372036854775807", INT64_MAX}};
    static const struct {
        const char *text;
        double value;
    } reals[] = {{"1.", 1.0}, {".5", 0.5}, {"6e-4", 6e-4}, {"1E5", 1e5}, {"1_0.2_5e+0_1", 102.5}, {"1e-1", 0.1}};
    for (size_t i = 0; i < sizeof integers / sizeof integers[0]; i++) {
        struct config_token token = first(integers[i].text);
        ck_assert_msg(token.type == CONFIG_TOKEN_NUMBER && token.value.type == CONFIG_VALUE_INT, "%s",
                      integers[i].text);
        ck_assert_int_eq(token.value.integer, integers[i].value);
        ck_assert_uint_eq(token.length, strlen(integers[i].text));
    }
    for (size_t i = 0; i < sizeof reals / sizeof reals[0]; i++) {
        struct config_token token = first(reals[i].text);
        ck_assert_msg(token.type == CONFIG_TOKEN_NUMBER && token.value.type == CONFIG_VALUE_REAL, "%s", reals[i].text);
        ck_assert_msg(token.value.real == reals[i].value, "%s", reals[i].text);
    }
}

TEST(lex_bad_numbers)
{
    static const char *const bad[] = {"1__0",
                                      "1_",
                                      "0x",
                                      "0xg",
                                      "0b2",
                                      "010",
                                      "1e",
                                      "1e+",
                                      "1e999",
                                      "3j",
                                      "5x",
                                      "1.5f",
                                      "9223372036854775808",
                                      "0x1_",
                                      "11111111111111111111111111111111111111111111111111111111111111111111111111111"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct config_token token = first(bad[i]);
        ck_assert_msg(token.type == CONFIG_TOKEN_BAD && token.message != NULL, "%s", bad[i]);
        ck_assert_uint_gt(token.length, 0);
    }
}

TEST(lex_strings)
{
    static const struct {
        const char *text, *value;
    } strings[] = {{"''", ""},
                   {"'a\"b'", "a\"b"},
                   {"\"a'b\"", "a'b"},
                   {"'\\n\\t\\\\\\''", "\n\t\\'"},
                   {"'\\x41\\101\\u20ac\\U0001F600'", "AA\xE2\x82\xAC\xF0\x9F\x98\x80"},
                   {"'\\xe9'", "\xC3\xA9"},
                   {"'\\q'", "\\q"},
                   {"'a\\\nb'", "ab"},
                   {"'''a'b\"\nc'''", "a'b\"\nc"},
                   {"'''a\r\nb'''", "a\nb"},
                   {"'caf\xC3\xA9'", "caf\xC3\xA9"}};
    for (size_t i = 0; i < sizeof strings / sizeof strings[0]; i++) {
        struct config_token token = first(strings[i].text);
        ck_assert_msg(token.type == CONFIG_TOKEN_STRING, "%s: %s", strings[i].text, token.message);
        ck_assert_str_eq(token.value.text, strings[i].value);
    }
}

TEST(lex_bad_strings)
{
    static const char *const bad[] = {"'abc",          "'abc\ndef'", "'''abc", "'\\x4'", "'\\u12'",
                                      "'\\U00110000'", "'\\ud800'",  "'\\0'",  "'abc\\", "\""};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct config_token token = first(bad[i]);
        ck_assert_msg(token.type == CONFIG_TOKEN_BAD && token.message != NULL, "%s", bad[i]);
        ck_assert_uint_gt(token.length, 0);
    }
}

TEST(lex_pool_is_bounded)
{
    struct config_lex lex;
    struct config_token token;
    const char *text = "'abcd' 'abcd'";
    char guarded[12];
    memset(guarded, '#', sizeof guarded);
    config_lex_begin(&lex, text, strlen(text), guarded, 8);
    config_lex_next(&lex, &token);
    ck_assert_int_eq(token.type, CONFIG_TOKEN_STRING);
    config_lex_next(&lex, &token);
    ck_assert_int_eq(token.type, CONFIG_TOKEN_BAD);
    ck_assert_ptr_null(config_lex_reserve(&lex, 8));
    ck_assert_ptr_nonnull(config_lex_reserve(&lex, 2));
    for (size_t i = 8; i < sizeof guarded; i++)
        ck_assert_int_eq(guarded[i], '#');
}

TEST(lex_literals)
{
    struct config_value value;
    ck_assert(config_lex_literal("-12", pool, sizeof pool, &value));
    ck_assert_int_eq(value.integer, -12);
    ck_assert(config_lex_literal("+6e-4", pool, sizeof pool, &value));
    ck_assert(value.real == 6e-4);
    ck_assert(config_lex_literal("'a\\n'", pool, sizeof pool, &value));
    ck_assert_str_eq(value.text, "a\n");
    static const char *const none[] = {"",    "-",    "abc",     "1 ", " 1",   "1 2", "1+1",
                                       "--1", "-'a'", "'a' 'b'", "'a", "True", "1\n"};
    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++)
        ck_assert_msg(!config_lex_literal(none[i], pool, sizeof pool, &value), "%s", none[i]);
}
