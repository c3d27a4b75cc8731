/* Flags of the programs that have no configuration: --name=value or --name value; '-' equals '_'. */
#ifndef GPT_TRAIN_CLI_FLAGS_H
#define GPT_TRAIN_CLI_FLAGS_H

#include "base/status.h"

enum flag_kind {
    FLAG_SWITCH,   /* no value; sets a bool */
    FLAG_TEXT,     /* a const char * */
    FLAG_NUMBER,   /* an int64_t from `min` to `max` */
    FLAG_FRACTION, /* a double from 0 to below 1 */
    FLAG_WORD      /* an int or enum: the index of one of `words` */
};

struct flag {
    const char *name; /* with '-' */
    enum flag_kind kind;
    void *to;
    int64_t min, max;         /* FLAG_NUMBER */
    const char *const *words; /* FLAG_WORD: ends with NULL */
    const char *expected;     /* FLAG_TEXT: what the text must be if it must not be empty, for the message, or NULL */
};

/* Logs "ARGUMENT: WHAT; PROGRAM --help lists the flags".  Returns GT_USAGE. */
enum gt_status flags_error(const char *program, const char *what, const char *argument);
/* Reads the flags in argv[1..] up to "--", and moves the other arguments, "-" included, to argv[0..*count-1].  `flags`
 * ends with a NULL name.  A flag that needs a value but has no '=' takes the next argument.  Errors: GT_USAGE. */
enum gt_status flags_read(const char *program, const struct flag *flags, int argc, char **argv, int *count);

#endif
