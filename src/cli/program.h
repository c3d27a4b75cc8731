/* Parts that the programs share: their start and end, the command line, the check for a model. */
#ifndef GPT_TRAIN_CLI_PROGRAM_H
#define GPT_TRAIN_CLI_PROGRAM_H

#include "config/config.h"

/* Holds the descriptors 0 to 2, sets the name for log lines, and makes failed writes errors instead
 * of signals.  Call it before anything is opened. */
void program_begin(const char *name);
/* Opens /dev/null on each closed descriptor from 0 to 2, so that no file of ours gets one of these
 * numbers.  Reading and writing them still fails.  Further calls are harmless. */
void program_descriptors_hold(void);
/* Prints the release, and the backends and libraries that it was built with. */
void program_version_print(const char *name);
/* Calls print_help(), or prints the version, if `help` or `version` is set.  Returns false if
 * neither is. */
bool program_answers(const char *name, bool help, bool version, void (*print_help)(void));
/* Returns the exit status: 128 + n after GT_STOPPED by signal n; 128 + SIGPIPE when the reader of
 * standard output is gone; 1, with a log line, when standard output could not be written for
 * another reason; else status_exit_code(). */
int program_exit_status(enum gt_status status);

/* Checks that `path` has a model.  Otherwise logs whether the folder, the first checkpoint or a
 * model is missing. Errors: GT_DATA, those of checkpoint_probe(). */
enum gt_status program_model_check(const char *path);

/* ---- flags of the programs that have no configuration: --name=value or --name value; '-' equals
 * '_' ---- */

enum flag_kind {
    FLAG_SWITCH,   /* no value; sets a bool */
    FLAG_TEXT,     /* a const char * */
    FLAG_NUMBER,   /* an int64_t from `min` to `max` */
    FLAG_FRACTION, /* a double from 0 to below 1 */
    FLAG_WORD,     /* an int or enum: the index of one of `words` */
    FLAG_MAY_WORD  /* the same, or `max` if no word of the list follows */
};

struct flag {
    const char *name; /* with '-' */
    enum flag_kind kind;
    void *to;
    int64_t min, max;         /* FLAG_NUMBER */
    const char *const *words; /* FLAG_WORD: ends with NULL */
    char *room; /* FLAG_TEXT: FILE_PATH_MAX bytes for a path that begins with "~/", or NULL */
    const char *expected; /* FLAG_TEXT: what the text must be if it must not be empty, for the
                             message, or NULL */
};

/* Logs "ARGUMENT: WHAT; PROGRAM --help lists the flags".  Returns GT_USAGE. */
enum gt_status flags_error(const char *program, const char *what, const char *argument);
/* What other programs call flags, and what to write instead. */
struct flag_answer {
    const char *names; /* with '-', a space before and after each */
    const char *answer;
};

/* Reads the flags in argv[1..] up to "--", and moves the other arguments, "-" included, to
 * argv[0..*count-1].  `flags` ends with a NULL name, and so does `answers`, which may be NULL.  A
 * flag that needs a value but has no '=' takes the next argument.  Errors: GT_USAGE. */
enum gt_status flags_read(const char *program, const struct flag *flags,
                          const struct flag_answer *answers, int argc, char **argv, int *count);

#endif
