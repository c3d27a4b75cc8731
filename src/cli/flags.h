/* Flags of the programs that have no configuration: --name=value or --name value; '-' equals '_'. */
#ifndef GPT_TRAIN_CLI_FLAGS_H
#define GPT_TRAIN_CLI_FLAGS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

struct flag_switch {
    const char *name; /* with '-' */
    bool *value;      /* set to true if the flag is given */
};

struct flag_value {
    const char *name; /* with '-' */
    /* Stores `value` in `arguments`, or logs what is wrong with it and returns GT_USAGE. */
    enum gt_status (*read)(void *arguments, const char *value);
};

struct flags {
    const char *program; /* for "PROGRAM --help lists the flags" */
    void *arguments;
    const struct flag_switch *switches; /* ends with a NULL name, as `values` does */
    const struct flag_value *values;
};

/* Logs "ARGUMENT: WHAT; PROGRAM --help lists the flags".  Returns GT_USAGE. */
enum gt_status flags_error(const char *program, const char *what, const char *argument);
/* Reads the flag argv[*at].  If it needs a value but has no '=', uses the next argument and advances *at to it.
 * Errors: GT_USAGE, logged. */
enum gt_status flags_read(const struct flags *flags, int argc, char **argv, int *at);

#endif
