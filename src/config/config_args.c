/* Reads a command line as nanoGPT does: files and --key=value from left to right; the last setting
 * wins.
 *
 * The type of the key determines how a value is read, without quotes: numbers as in a file,
 * booleans in eight spellings, strings verbatim (but quotes around a valid literal are removed,
 * because nanoGPT's users expect that). Only files may contain arithmetic.  After a mistake the
 * reader continues, so that it reports all of them.
 */
#include "config/config_args.h"

#include "config/config_check.h"
#include "config/config_flat.h"
#include "config/config_key.h"
#include "config/config_names.h"
#include "config/config_value.h"

struct args {
    struct config *config;
    char *const *argv;
    int argc;
    int at; /* the argument being read */
};

/* Returns true if the argument can be the value of the preceding flag. */
static bool is_value(const char *text)
{
    return text[0] != '-' || text[1] == '\0' || text[1] == '.' ||
           (text[1] >= '0' && text[1] <= '9');
}

/* Reads --key without '=': a switch, or a key whose value is the next argument. */
static enum gt_status read_spaced(struct args *args, enum config_key key)
{
    const struct config_key_info *info = config_key_info_get(key);
    const char *flag = args->argv[args->at];
    const char *next = args->at + 1 < args->argc ? args->argv[args->at + 1] : NULL;
    const struct config_origin origin = {.source = flag};
    if ((info->flags & CONFIG_BARE) != 0)
        return config_text_assign(args->config, key, info->words[1], &origin);
    if (info->type == CONFIG_TYPE_BOOL && (next == NULL || config_boolean_word(next) < 0))
        return config_text_assign(args->config, key, "True", &origin);
    if (next == NULL || !is_value(next)) {
        args->config->origin[key].bad = true;
        return FAIL(GT_USAGE, "%s: a value must follow (%s=VALUE)", flag, flag);
    }
    args->at++;
    return config_text_assign(args->config, key, next, &origin);
}

/* Reads a flag of another program's name: --name=value, --name value, or a switch. */
static enum gt_status read_other(struct args *args, const struct config_other *other,
                                 const char *given)
{
    const char *flag = args->argv[args->at],
               *next = args->at + 1 < args->argc ? args->argv[args->at + 1] : NULL;
    const struct config_origin origin = {.source = flag};
    const bool follows = given == NULL && next != NULL && is_value(next) && !file_exists(next);
    args->at += follows;
    return config_other_text_set(args->config, other,
                                 follows         ? next
                                 : given != NULL ? given
                                                 : "True",
                                 &origin);
}

/* Skips the argument that is the value of a flag without effect. */
static void skip_value(struct args *args, bool has_value)
{
    const char *next = args->at + 1 < args->argc ? args->argv[args->at + 1] : NULL;
    if (!has_value && next != NULL && is_value(next) && !file_exists(next))
        args->at++;
}

static enum gt_status refuse_flag(struct args *args, const char *argument, const char *name,
                                  size_t length, enum config_key key)
{
    char hint[CONFIG_HINT_MAX];
    enum config_program program = args->config->program;
    if (key != CONFIG_KEY_COUNT)
        return FAIL(GT_USAGE, "%s: %s is a key of %s, not of %s", argument,
                    config_key_info_get(key)->name,
                    config_program_name(program == CONFIG_TRAIN ? CONFIG_SAMPLE : CONFIG_TRAIN),
                    config_program_name(program));
    skip_value(args,
               name[length] == '='); /* its value would otherwise be reported as a missing file */
    return FAIL(GT_USAGE, ERROR_UNKNOWN_KEY "%s: unknown key %.*s%s", argument,
                (int)(length < 80 ? length : 80), name,
                config_key_hint(hint, name, length, program));
}

static enum gt_status read_flag(struct args *args)
{
    const char *argument = args->argv[args->at];
    const char *name = argument + 2;
    size_t length = strcspn(name, "=");
    enum config_key key = config_key_find(name, length);
    const struct config_other *other = config_other_find(name, length, args->config->program);
    if (key == CONFIG_KEY_COUNT && other != NULL && other->kind == CONFIG_OTHER_SAME)
        key = other->key;
    else if (key == CONFIG_KEY_COUNT && other != NULL && other->kind != CONFIG_OTHER_HINT)
        return read_other(args, other, name[length] == '=' ? name + length + 1 : NULL);
    if (key == CONFIG_KEY_COUNT && config_name_is_wandb(name, length)) {
        skip_value(args, name[length] == '=');
        return GT_OK;
    }
    if (key == CONFIG_KEY_COUNT ||
        (config_key_info_get(key)->programs & (unsigned)args->config->program) == 0)
        return refuse_flag(args, argument, name, length, key);
    const struct config_origin origin = {.source = argument};
    return name[length] == '=' ? config_text_assign(args->config, key, name + length + 1, &origin)
                               : read_spaced(args, key);
}

/* Reads an argument without dashes, a file.  Reports a key that lacks its dashes, and tells users
 * of gpt-sample how a prompt or a folder is given. */
static enum gt_status read_word(struct args *args, const char *argument)
{
    const bool sample = args->config->program == CONFIG_SAMPLE;
    const size_t length = strcspn(argument, "=");
    if (argument[length] == '=' && config_key_find(argument, length) != CONFIG_KEY_COUNT)
        return FAIL(GT_USAGE, "%s: write --%s", argument, argument);
    if (sample && file_is_folder(argument))
        return FAIL(GT_USAGE, "%s: is a folder; write --out_dir=%s", argument, argument);
    if (sample && !file_exists(argument))
        return FAIL(
            GT_USAGE,
            "%.60s: no such file; write --start=\"%.60s\" for a prompt, --out_dir=DIR for a model",
            argument, argument);
    if (file_is_folder(argument))
        return FAIL(GT_USAGE,
                    "%s: is a folder, and a configuration is a file; write --init_from=%s for a "
                    "model, --dataset=%s for data",
                    argument, argument, argument);
    if (!file_exists(argument) && strpbrk(argument, "./") == NULL)
        return FAIL(GT_USAGE,
                    "%.60s: no such file; a value is written --KEY=VALUE, and several --KEY=A,B",
                    argument);
    return config_read_file(args->config, argument);
}

/* Refuses an argument with one dash.  llm.c has such flags, with the value behind them. */
static enum gt_status refuse_letter(struct args *args, const char *argument)
{
    const struct config_other *other =
        config_other_find(argument, strlen(argument), args->config->program);
    skip_value(args, other == NULL);
    return FAIL(GT_USAGE, "%s: not a flag; flags are written --key=value%s", argument,
                other != NULL ? other->text : "");
}

static enum gt_status read_argument(struct args *args)
{
    const char *argument = args->argv[args->at];
    if (argument[0] == '-' && argument[1] == '-' && argument[2] != '\0')
        return read_flag(args);
    if (argument[0] == '-')
        return refuse_letter(args, argument);
    return read_word(args, argument);
}

/* Sets `help` or `version` if --help, --help=all, -h or --version occurs anywhere.  Returns true if
 * one does. */
static bool find_question(struct config *config, int argc, char *const argv[])
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            config->help = CONFIG_HELP_COMMON;
        else if (strcmp(argv[i], "--help=all") == 0)
            config->help = CONFIG_HELP_ALL;
        else if (strcmp(argv[i], "--version") == 0)
            config->version = true;
    }
    return config->help != CONFIG_HELP_NONE || config->version;
}

int64_t config_tasks(bool *first)
{
    /* Open MPI; MPICH and Intel MPI; srun, which sets the others too if it speaks PMIx or PMI. */
    static const char *const names[][2] = {{"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"},
                                           {"PMI_SIZE", "PMI_RANK"},
                                           {"SLURM_STEP_NUM_TASKS", "SLURM_PROCID"}};
    *first = true;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const char *tasks = getenv(names[i][0]), *rank = getenv(names[i][1]);
        const int64_t count = tasks != NULL ? strtol(tasks, NULL, 10) : 1;
        *first = rank == NULL || strtol(rank, NULL, 10) == 0;
        if (count > 1)
            return count;
    }
    return 1;
}

/* Sets the number of ranks to that of the launcher's tasks. torchrun does not launch MPI programs,
 * so its tasks cannot become ranks. */
static enum gt_status ranks_resolve(struct config *config)
{
    const char *world = getenv("WORLD_SIZE");
    bool first;
    const int64_t tasks = config_tasks(&first);
    if (tasks > 1 && tasks != config->ranks && config_key_was_set(config, CONFIG_KEY_ranks))
        return FAIL(GT_USAGE,
                    "ranks=%" PRId64 ", but a launcher started %" PRId64
                    " tasks; leave --ranks out",
                    config->ranks, tasks);
    if (tasks > 1)
        config->ranks = tasks;
    else if (world != NULL && strtol(world, NULL, 10) > 1 && getenv("RANK") != NULL &&
             getenv("LOCAL_RANK") != NULL)
        return FAIL(
            GT_USAGE,
            "WORLD_SIZE=%s: this is torchrun's environment; type the command once, without torchrun, and add "
            "--ranks=%s; on several machines: mpirun -n %s gpt-train ...",
            world, world, world);
    return GT_OK;
}

enum gt_status config_parse_args(struct config *config, int argc, char *const argv[])
{
    struct args args = {config, argv, argc, 1};
    bool failed = false;
    assert(argc >= 0 && (argc == 0 || argv[0] != NULL));
    if (find_question(config, argc, argv))
        return GT_OK;
    for (; args.at < args.argc; args.at++)
        failed = read_argument(&args) != GT_OK || failed;
    failed = (config->program == CONFIG_TRAIN && ranks_resolve(config) != GT_OK) || failed;
    if (config_check(config) != GT_OK || failed)
        return GT_USAGE;
    config_notes(config);
    return GT_OK;
}

enum gt_status config_compared(const struct config *config, struct config *out)
{
    config_defaults(out, config->program);
    out->backends_built = config->backends_built;
    TRY(config_read_file(out, config->compare));
    for (int key = 0; key < CONFIG_KEY_COUNT; key++) {
        const struct config_origin *origin = &config->origin[key];
        const struct config_value value = config_key_value(config, (enum config_key)key);
        if (origin->source != NULL && strncmp(origin->source, "--", 2) == 0)
            TRY(config_key_assign(out, (enum config_key)key, &value, origin));
    }
    return config_check(out);
}
