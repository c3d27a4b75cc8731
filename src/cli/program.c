/* The start and the end of every program, the check for a model, and the flags of programs without
 * a configuration.
 *
 * First the start repairs the state that the caller left: if a descriptor from 0 to 2 is closed,
 * the first file that we open gets its number, and text for the terminal would go into a
 * checkpoint.  A program fails if it cannot write all of its standard output, because half an
 * answer looks like a whole one.  If the reader has gone (`| head`), the program prints no message
 * and returns the status of one that SIGPIPE killed.  program_start.c has the command line of the
 * programs with a struct config.
 */
#include "cli/program.h"

#include <config.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include "config/config_key.h"
#include "io/checkpoint.h"
#include "io/checkpoint_folder.h"
#include "io/checkpoint_open.h"
#include "session/stop.h"

void program_descriptors_hold(void)
{
    for (int fd = 0; fd <= 2; fd++) {
        /* Open it in the wrong direction, so that reads and writes fail as on a closed descriptor,
         * and without O_CLOEXEC, because child processes have the same problem.  If this fails,
         * nothing changes. */
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF)
            (void)!open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY);
    }
}

void program_begin(const char *name)
{
    program_descriptors_hold();
    (void)signal(SIGCHLD, SIG_DFL); /* if the caller ignored it, our children would be reaped before
                                       we wait for them */
    log_program_set(name);
    stop_ignore_writes();
}

void program_version_print(const char *name)
{
    printf("%s (gpt-train) %s\nBackends:  %s\nLibraries: %s\n", name, PACKAGE_VERSION,
           BUILD_BACKENDS, BUILD_LIBRARIES);
}

bool program_answers(const char *name, bool help, bool version, void (*print_help)(void))
{
    if (help)
        print_help();
    else if (version)
        program_version_print(name);
    return help || version;
}

int program_exit_status(enum gt_status status)
{
    const int lost = log_output_error();
    if (status == GT_STOPPED && stop_requested())
        return 128 + stop_requested();
    if ((status == GT_OK || status == GT_IO) && lost == EPIPE)
        return 128 + SIGPIPE;
    if ((status == GT_OK || status == GT_IO) && lost != 0)
        return FAIL(1, "standard output could not be written: %s", strerror(lost));
    return status_exit_code(status);
}

enum gt_status program_model_check(const char *path)
{
    char earlier[FILE_PATH_MAX];
    enum checkpoint_kind kind;
    bool exists, begun;
    TRY(checkpoint_probe(path, &kind));
    if (kind != CHECKPOINT_NONE)
        return GT_OK;
    TRY(file_stat_exists(path, &exists));
    TRY(file_stat_exists(FILE_IN(path, "lock"), &begun)); /* gpt-train's: a run has begun */
    if (checkpoint_keep_earlier_last(path, earlier))
        return FAIL(GT_DATA, ERROR_NO_CHECKPOINT "%s: no model here; an earlier run is in %s", path,
                    earlier);
    return FAIL(
        GT_DATA, ERROR_NO_CHECKPOINT "%s: %s", path,
        !exists ? "no such folder; train a model with gpt-train, or use --out_dir"
        : begun ? "no checkpoint yet; gpt-train saves the first one after eval_interval iterations"
                : "no model here; train one with gpt-train, or use --out_dir");
}

/* ---- flags, looked up in a table; config/config_args.c reads keys, which files can set too ----
 */

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

/* Returns the answer to a flag of another program, or NULL. */
static const char *answer_find(const struct flag_answer *answers, const char *flag)
{
    char name[48] = " ";
    size_t count = 1;
    for (const char *at = flag + 2; *at != '\0' && *at != '=' && count < sizeof name - 2; at++)
        name[count++] = (char)(*at == '_' ? '-' : *at);
    name[count++] = ' ';
    name[count] = '\0';
    for (; answers != NULL && answers->names != NULL; answers++)
        if (strncmp(flag, "--", 2) == 0 && strstr(answers->names, name) != NULL)
            return answers->answer;
    return NULL;
}

/* Reports an unknown flag, with what to write instead, or the nearest known one. */
static enum gt_status unknown_error(const char *program, const struct flag *flags,
                                    const struct flag_answer *answers, const char *flag)
{
    const char *answer = answer_find(answers, flag);
    if (answer != NULL)
        return FAIL(GT_USAGE, "%s: no such flag; %s", flag, answer);
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

static enum gt_status read_text(const struct flag *flag, const char *value)
{
    if (value[0] == '\0' && flag->expected != NULL)
        return value_error(flag, "''", flag->expected);
    if (flag->room != NULL)
        value = file_expand_home(flag->room, value);
    memcpy(flag->to, &value, sizeof value);
    return GT_OK;
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
    return value_error(
        flag, value, TEXT(80, "a whole number from %" PRId64 " to %" PRId64, flag->min, flag->max));
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
    char all[320] = "";
    for (int i = 0; flag->words[i] != NULL; i++) {
        if (strcasecmp(value, flag->words[i]) == 0) { /* Q4_K_M is known in capitals */
            memcpy(flag->to, &i, sizeof i);
            return GT_OK;
        }
        const size_t used = strlen(all);
        const char *before = i == 0 ? "" : flag->words[i + 1] != NULL ? ", " : " or ";
        (void)snprintf(all + used, sizeof all - used, "%s%s", before, flag->words[i]);
    }
    return value_error(flag, value, all);
}

static bool is_word(const struct flag *flag, const char *text)
{
    const char *const *word = flag->words;
    while (*word != NULL && strcmp(*word, text) != 0)
        word++;
    return *word != NULL;
}

/* Reads the flag argv[*at].  If its value is the next argument, advances *at to that. */
static enum gt_status flag_read(const char *program, const struct flag *flags,
                                const struct flag_answer *answers, int argc, char **argv, int *at)
{
    const char *argument = argv[*at], *equals = strchr(argument, '=');
    const struct flag *flag = flags;
    while (flag->name != NULL && !flag_is(argument, flag->name))
        flag++;
    if (flag->name == NULL)
        return unknown_error(program, flags, answers, argument);
    if (flag->kind == FLAG_SWITCH && equals != NULL)
        return flags_error(program, "takes no value", argument);
    if (flag->kind == FLAG_MAY_WORD && equals == NULL &&
        !is_word(flag, *at + 1 < argc ? argv[*at + 1] : "")) {
        memcpy(flag->to, &(int){(int)flag->max}, sizeof(int));
        return GT_OK;
    }
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
    case FLAG_MAY_WORD:
        return read_word(flag, value);
    default:
        return read_text(flag, value);
    }
}

enum gt_status flags_read(const char *program, const struct flag *flags,
                          const struct flag_answer *answers, int argc, char **argv, int *count)
{
    bool ended = false;
    for (int i = 1; i < argc; i++) {
        if (ended || argv[i][0] != '-' || argv[i][1] == '\0')
            argv[(*count)++] = argv[i];
        else if (strcmp(argv[i], "--") == 0)
            ended = true;
        else
            TRY(flag_read(program, flags, answers, argc, argv, &i));
    }
    return GT_OK;
}
