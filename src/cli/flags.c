/* Flags of gpt-prepare and gpt-export, looked up in a table.
 *
 * gpt-train and gpt-sample have keys instead, which files can set too; config/config_args.c reads those.
 */
#include "cli/flags.h"

#include <errno.h>

#include "config/config_key.h"

/* Returns true if `flag` (up to its '=') is --`name`; -h equals --help. */
static bool flag_is(const char *flag, const char *name)
{
    size_t i = 0;
    if (strcmp(flag, "-h") == 0)
        return strcmp(name, "help") == 0;
    if (strncmp(flag, "--", 2) != 0)
        return false;
    for (; name[i] != '\0'; i++)
        if ((flag[2 + i] == '_' ? '-' : flag[2 + i]) != name[i])
            return false;
    return flag[2 + i] == '\0' || flag[2 + i] == '=';
}

enum gt_status flags_error(const char *program, const char *what, const char *argument)
{
    return FAIL(GT_USAGE, "%s: %s; %s --help lists the flags", argument, what, program);
}

/* Reports an unknown flag, and names the nearest known one. */
static enum gt_status unknown_error(const char *program, const struct flag *flags, const char *flag)
{
    struct config_nearest nearest = {.name = flag + strspn(flag, "-")};
    nearest.length = strcspn(nearest.name, "=");
    for (; flags->name != NULL; flags++)
        config_nearest_try(&nearest, flags->name);
    if (nearest.known == NULL)
        return flags_error(program, "no such flag", flag);
    return FAIL(GT_USAGE, "%s: no such flag; did you mean --%s?", flag, nearest.known);
}

/* ---- values ---- */

static enum gt_status value_error(const struct flag *flag, const char *value, const char *expected)
{
    return FAIL(GT_USAGE, "--%s=%s: expected %s", flag->name, value, expected);
}

static enum gt_status read_text(const char *program, const struct flag *flag, const char *argument, const char *value)
{
    if (value[0] != '\0' || flag->expected == NULL) {
        memcpy(flag->to, &value, sizeof value);
        return GT_OK;
    }
    return flags_error(program, TEXT(80, "expected %s", flag->expected),
                       TEXT(64, "%.*s", (int)strcspn(argument, "="), argument));
}

static enum gt_status read_number(const struct flag *flag, const char *value)
{
    char *end = NULL;
    errno = 0;
    const int64_t number = strtoll(value, &end, 10);
    if (value[0] >= '0' && value[0] <= '9' && *end == '\0' && errno == 0 && number >= flag->min &&
        number <= flag->max) {
        memcpy(flag->to, &number, sizeof number);
        return GT_OK;
    }
    return value_error(flag, value, TEXT(80, "a whole number from %" PRId64 " to %" PRId64, flag->min, flag->max));
}

static enum gt_status read_fraction(const struct flag *flag, const char *value)
{
    char *end = NULL;
    const double fraction = strtod(value, &end);
    if (end == value || *end != '\0' || !(fraction >= 0 && fraction < 1))
        return value_error(flag, value, "a number from 0 to below 1");
    memcpy(flag->to, &fraction, sizeof fraction);
    return GT_OK;
}

static enum gt_status read_word(const struct flag *flag, const char *value)
{
    char all[128] = "";
    for (int i = 0; flag->words[i] != NULL; i++) {
        if (strcmp(value, flag->words[i]) == 0) {
            memcpy(flag->to, &i, sizeof i);
            return GT_OK;
        }
        const size_t used = strlen(all);
        const char *before = i == 0 ? "" : flag->words[i + 1] != NULL ? ", " : " or ";
        (void)snprintf(all + used, sizeof all - used, "%s%s", before, flag->words[i]);
    }
    return value_error(flag, value, all);
}

/* Reads the flag argv[*at].  If its value is the next argument, advances *at to that. */
static enum gt_status flag_read(const char *program, const struct flag *flags, int argc, char **argv, int *at)
{
    const char *argument = argv[*at], *equals = strchr(argument, '=');
    const struct flag *flag = flags;
    while (flag->name != NULL && !flag_is(argument, flag->name))
        flag++;
    if (flag->name == NULL)
        return unknown_error(program, flags, argument);
    if (flag->kind == FLAG_SWITCH && equals != NULL)
        return flags_error(program, "takes no value", argument);
    if (flag->kind != FLAG_SWITCH && equals == NULL && *at + 1 >= argc)
        return flags_error(program, "needs a value", argument);
    if (flag->kind == FLAG_SWITCH) {
        memcpy(flag->to, &(bool){true}, sizeof(bool));
        return GT_OK;
    }
    const char *value = equals != NULL ? equals + 1 : argv[++*at];
    switch (flag->kind) {
    case FLAG_NUMBER:
        return read_number(flag, value);
    case FLAG_FRACTION:
        return read_fraction(flag, value);
    case FLAG_WORD:
        return read_word(flag, value);
    default:
        return read_text(program, flag, argument, value);
    }
}

enum gt_status flags_read(const char *program, const struct flag *flags, int argc, char **argv, int *count)
{
    bool ended = false;
    for (int i = 1; i < argc; i++) {
        if (ended || argv[i][0] != '-' || argv[i][1] == '\0')
            argv[(*count)++] = argv[i];
        else if (strcmp(argv[i], "--") == 0)
            ended = true;
        else
            TRY(flag_read(program, flags, argc, argv, &i));
    }
    return GT_OK;
}
