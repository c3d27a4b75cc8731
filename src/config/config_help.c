/* --help, from the table of keys.
 *
 * Prints the groups in table order, and for each key its form, its help text and its default. Plain
 * --help prints the common keys, each with its text up to the first semicolon; that part must make
 * sense by itself.  Lines are folded between words at 80 columns.
 */
#include "config/config_help.h"

#include "config/config_key.h"
#include "config/config_value.h"

#define HELP_WIDTH 80
#define HELP_INDENT 26 /* where the help texts begin */

/* Writes "--n_layer=N", "--bias[=BOOL]", "--help". */
static void key_form(char out[static 256], const struct config_key_info *info)
{
    static const char *const forms[] = {[CONFIG_TYPE_INT] = "N",
                                        [CONFIG_TYPE_REAL] = "X",
                                        [CONFIG_TYPE_BOOL] = "BOOL",
                                        [CONFIG_TYPE_STRING] = "TEXT",
                                        [CONFIG_TYPE_WORD] = ""};
    const bool bare = info->type == CONFIG_TYPE_BOOL || (info->flags & CONFIG_BARE) != 0;
    char value[128];
    size_t used = (size_t)snprintf(value, 128, "%s",
                                   (info->flags & CONFIG_PATH) != 0 ? "PATH" : forms[info->type]);
    /* The first word of a bare key is its value when the flag is absent, so it is not listed. */
    for (size_t i = bare; info->type == CONFIG_TYPE_WORD && info->words[i] != NULL && used < 128;
         i++)
        used += (size_t)snprintf(value + used, 128 - used, "%s%s", used == 0 ? "" : "|",
                                 info->words[i]);
    if ((info->flags & CONFIG_FLAG_ONLY) != 0 && info->type == CONFIG_TYPE_BOOL)
        snprintf(out, 256, "--%s", info->name);
    else
        snprintf(out, 256, bare ? "--%s[=%s]" : "--%s=%s", info->name, value);
}

/* A space at which no line is broken. */
#define HARD_SPACE '\x1f'

/* Writes "help text (default 12)", with a hard space before the default; if `brief`, only up to the
 * first semicolon. */
static void key_text(char out[static 512], const struct config *defaults, enum config_key key,
                     bool brief)
{
    const struct config_key_info *info = config_key_info_get(key);
    const struct config_value value = config_key_value(defaults, key);
    const int length = (int)(brief ? strcspn(info->help, ";") : strlen(info->help));
    const bool bare = (info->flags & (CONFIG_FLAG_ONLY | CONFIG_BARE)) != 0 ||
                      strstr(info->help, "(default") != NULL;
    const char *text = CONFIG_KEY_TEXT(defaults, key);
    if (bare || strcmp(text, "''") == 0)
        snprintf(out, 512, "%.*s", length, info->help);
    else
        snprintf(out, 512, "%.*s (default%c%s)", length, info->help, HARD_SPACE,
                 info->type == CONFIG_TYPE_WORD ? value.text : text);
}

/* Prints the words of `text` after `column` characters of its line, folded and indented.  A word
 * that is too long for a line gets its own. */
static void fold(FILE *stream, int column, const char *text)
{
    while (*text != '\0') {
        int length = (int)strcspn(text, " ");
        if (column > HELP_INDENT && column + 1 + length > HELP_WIDTH) {
            fputc('\n', stream);
            column = 0;
        }
        const int blanks = column < HELP_INDENT ? HELP_INDENT - column : column > HELP_INDENT;
        fprintf(stream, "%*s", blanks, "");
        for (int i = 0; i < length; i++)
            fputc(text[i] == HARD_SPACE ? ' ' : text[i], stream);
        column += blanks + length;
        text += length;
        text += strspn(text, " ");
    }
    fputc('\n', stream);
}

static void help_key(FILE *stream, const struct config *defaults, enum config_key key, bool brief)
{
    char form[256], text[512];
    key_form(form, config_key_info_get(key));
    key_text(text, defaults, key, brief);
    fprintf(stream, "  %s", form);
    const int column = 2 + (int)strlen(form);
    const bool is_long = column + 2 > HELP_INDENT;
    fputs(is_long ? "\n" : "", stream);
    fold(stream, is_long ? 0 : column, text);
}

static void help_head(FILE *stream, enum config_program program, bool all)
{
    static const char *const train =
        "Usage: gpt-train [CONFIG.py ...] [--KEY=VALUE ...]\n\n"
        "Trains a GPT.  All memory is planned before the first step.\n\n"
        "Examples\n"
        "  gpt-train config/shakespeare_char_cpu.py             train\n"
        "  gpt-train --init_from=resume --out_dir=out           continue a run\n"
        "  gpt-train --plan --device_profile=rtx3060            show memory and time\n"
        "  gpt-train --init_from=Qwen/Qwen3-4B --lora_rank=16 --dataset=chats\n";
    static const char *const sample =
        "Usage: gpt-sample [CONFIG.py ...] [--KEY=VALUE ...]\n\n"
        "Writes text with a model that gpt-train trained.\n\n"
        "Examples\n"
        "  gpt-sample --out_dir=out --start='Once upon a time'\n"
        "  gpt-sample --init_from=gpt2 --num_samples=1 --temperature=0.6\n";
    fputs(program == CONFIG_SAMPLE ? sample : train, stream);
    if (all)
        fputs("\nFiles and flags are read from left to right; the last value wins.  Files hold\n"
              "nanoGPT's NAME = VALUE lines and are never executed.  In a flag, - is _.\n"
              "A BOOL is True or False (true, false, 1, 0, yes, no); --KEY alone is True.\n",
              stream);
}

void config_print_help(FILE *stream, enum config_program program, bool all)
{
    static const char *const titles[] = {
/* Titles of the groups, with a NULL for each key. */
#define CONFIG_GROUP(title) title,
#define CONFIG_KEY(name) NULL,
#include "config/keys.def"
    };
    const char *title = NULL; /* of the group, until it is printed */
    enum config_key key = 0;
    struct config defaults;
    config_defaults(&defaults, program);
    help_head(stream, program, all);
    for (size_t row = 0; row < sizeof titles / sizeof titles[0]; row++) {
        if (titles[row] != NULL) {
            title = titles[row];
            continue;
        }
        const struct config_key_info *info = config_key_info_get(key++);
        if ((info->programs & (unsigned)program) == 0 ||
            (!all && (info->flags & CONFIG_COMMON) == 0))
            continue;
        if (title != NULL)
            fprintf(stream, "\n%s\n", title);
        title = NULL;
        help_key(stream, &defaults, key - 1, !all);
    }
    if (all)
        fputs("\nExit status: 0 done, 1 failure, 2 bad key, value or file, 3 not enough memory,\n"
              "128+N stopped by signal N.\n",
              stream);
    else
        fprintf(stream, "\n%s --help=all lists every key; man %s explains more.\n",
                config_program_name(program), config_program_name(program));
}
