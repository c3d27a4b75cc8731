/* Flags of gpt-prepare and gpt-export, looked up in two tables: switches, and flags with a value.
 *
 * The programs handle "--" and arguments that are not flags themselves.  gpt-train and gpt-sample have keys instead,
 * which files can set too; config/config_args.c reads those.
 */
#include "cli/flags.h"

#include <string.h>

#include "base/log.h"
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
    log_error("%s: %s; %s --help lists the flags", argument, what, program);
    return GT_USAGE;
}

/* The search for the known flag that is nearest to a mistyped one. */
struct nearest {
    const char *typed;
    size_t length;
    int limit;         /* only a smaller distance counts */
    const char *known; /* NULL: no flag is close enough */
};

static void nearest_try(struct nearest *nearest, const char *known)
{
    const int distance = config_name_distance(nearest->typed, nearest->length, known);
    if (distance >= nearest->limit)
        return;
    nearest->limit = distance;
    nearest->known = known;
}

/* Reports an unknown flag, and names the nearest known one. */
static enum gt_status unknown_error(const struct flags *flags, const char *flag)
{
    struct nearest nearest = {.typed = flag + strspn(flag, "-")};
    nearest.length = strcspn(nearest.typed, "=");
    nearest.limit = config_name_limit(nearest.length);
    for (const struct flag_switch *known = flags->switches; known->name != NULL; known++)
        nearest_try(&nearest, known->name);
    for (const struct flag_value *known = flags->values; known->name != NULL; known++)
        nearest_try(&nearest, known->name);
    if (nearest.known == NULL)
        return flags_error(flags->program, "no such flag", flag);
    log_error("%s: no such flag; did you mean --%s?", flag, nearest.known);
    return GT_USAGE;
}

enum gt_status flags_read(const struct flags *flags, int argc, char **argv, int *at)
{
    const char *flag = argv[*at];
    const char *equals = strchr(flag, '=');
    for (const struct flag_switch *known = flags->switches; known->name != NULL; known++) {
        if (!flag_is(flag, known->name))
            continue;
        if (equals != NULL)
            return flags_error(flags->program, "takes no value", flag);
        *known->value = true;
        return GT_OK;
    }
    for (const struct flag_value *known = flags->values; known->name != NULL; known++) {
        if (!flag_is(flag, known->name))
            continue;
        if (equals == NULL && *at + 1 >= argc)
            return flags_error(flags->program, "needs a value", flag);
        return known->read(flags->arguments, equals != NULL ? equals + 1 : argv[++*at]);
    }
    return unknown_error(flags, flag);
}
