/* Tests of src/config/config_help.c: each key is listed once, in 80 columns; --help alone is short.
 */
#include "config/config_help.h"
#include "config/config_key.h"
#include "tests/unit/config_fixture.h"

typedef void printer(FILE *stream, enum config_program program);

static void help_all(FILE *stream, enum config_program program)
{
    config_print_help(stream, program, true);
}

static void help_common(FILE *stream, enum config_program program)
{
    config_print_help(stream, program, false);
}

/* Returns the output of the printer; the caller calls free(). */
static char *printed(printer *print, enum config_program program)
{
    char *text = NULL;
    size_t size = 0;
    FILE *stream = open_memstream(&text, &size);
    ck_assert_ptr_nonnull(stream);
    print(stream, program);
    ck_assert_int_eq(fclose(stream), 0);
    ck_assert_uint_gt(size, 500);
    return text;
}

static int occurrences(const char *text, const char *words)
{
    int count = 0;
    for (const char *at = strstr(text, words); at != NULL; at = strstr(at + 1, words))
        count++;
    return count;
}

TEST(help_lists_every_key_once)
{
    for (int program = CONFIG_TRAIN; program <= CONFIG_SAMPLE; program++) {
        char *text = printed(help_all, (enum config_program)program);
        for (int key = 0; key < CONFIG_KEY_COUNT; key++) {
            const struct config_key_info *info = config_key_info_get((enum config_key)key);
            char forms[3][80];
            int count = 0;
            snprintf(forms[0], 80, "\n  --%s=", info->name);
            snprintf(forms[1], 80, "\n  --%s[", info->name);
            snprintf(forms[2], 80, "\n  --%s ", info->name);
            for (int i = 0; i < 3; i++)
                count += occurrences(text, forms[i]);
            ck_assert_msg(count == ((info->programs & (unsigned)program) != 0 ? 1 : 0), "%s: %d",
                          info->name, count);
        }
        free(text);
    }
}

TEST(help_fits_80_columns)
{
    printer *const printers[] = {help_all, help_common};
    for (int i = 0; i < 4; i++) {
        char *text = printed(printers[i % 2], i < 2 ? CONFIG_TRAIN : CONFIG_SAMPLE);
        for (const char *line = text; *line != '\0'; line += strcspn(line, "\n") + 1) {
            size_t width = strcspn(line, "\n");
            ck_assert_msg(width <= 80, "%zu columns: %.*s", width, (int)width, line);
            ck_assert_msg(width == 0 || line[width - 1] != ' ', "ends in a space: %.*s", (int)width,
                          line);
            for (size_t j = 0; j < width; j++)
                ck_assert_msg(line[j] >= 32 && line[j] < 127, "byte %d in: %.*s", line[j],
                              (int)width, line);
        }
        free(text);
    }
}

/* The common keys, with examples, fit on one screen; the rest are named. */
TEST(help_alone_is_short)
{
    static const char *const common[] = {"--out_dir=PATH", "--device=TEXT", "--explain_oom=PATH",
                                         "--help[=common|all]"};
    for (int program = CONFIG_TRAIN; program <= CONFIG_SAMPLE; program++) {
        char *text = printed(help_common, (enum config_program)program);
        ck_assert_int_le(occurrences(text, "\n"), 60);
        ck_assert_int_eq(occurrences(text, "Usage: gpt-"), 1);
        ck_assert_int_eq(occurrences(text, "\nExamples\n"), 1);
        ck_assert_int_eq(occurrences(text, "--help=all lists every key"), 1);
        ck_assert_int_eq(occurrences(text, "--cuda_graphs"), 0);
        for (size_t i = 0; i < sizeof common / sizeof common[0]; i++)
            ck_assert_int_eq(occurrences(text, common[i]),
                             i == 2 && program == CONFIG_SAMPLE ? 0 : 1);
        free(text);
    }
}

TEST(help_shows_defaults)
{
    char *train = printed(help_all, CONFIG_TRAIN);
    char *sample = printed(help_all, CONFIG_SAMPLE);
    ck_assert_int_eq(occurrences(train, "(default 'scratch')"), 1);
    ck_assert_int_eq(occurrences(sample, "(default 'scratch')"), 0);
    ck_assert_int_eq(occurrences(sample, "(default 'resume')"), 1);
    ck_assert_int_eq(occurrences(train, "(default 6e-05)"), 1);
    ck_assert_int_eq(occurrences(sample, "(default '\\n')"), 1);
    ck_assert_int_eq(occurrences(train, "--gelu=auto|erf|tanh"), 1);
    ck_assert_int_eq(occurrences(train, "--plan[=text|json|json-pareto|svg]"), 1);
    free(train);
    free(sample);
}
