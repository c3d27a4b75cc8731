/* --help and the man page's option list, from the table of keys.
 *
 * Both walk the groups in the table's order; a key shows its form, its help text and its default.  Text is folded at
 * 100 columns by words.  The roff output uses no macro but .SS, .TP and .B, and escapes what roff would interpret.
 */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "config/config_key.h"

#define HELP_WIDTH 100
#define HELP_INDENT 34 /* where the help texts begin */

/* Where words are put, and how far the line has come. */
struct folder {
    FILE *stream;
    int column;
};

/* What stands for the value in "--key=VALUE"; out has room for the words of a choice. */
static const char *value_form(char out[static 128], const struct config_key_info *info)
{
    size_t used = 0;

    out[0] = '\0';
    switch (info->type) {
    case CONFIG_TYPE_INT:
        return "N";
    case CONFIG_TYPE_REAL:
        return "X";
    case CONFIG_TYPE_BOOL:
        return "BOOL";
    case CONFIG_TYPE_STRING:
        return (info->flags & CONFIG_PATH) != 0 ? "PATH" : "TEXT";
    case CONFIG_TYPE_CHOICE:
        break;
    }
    for (size_t i = 0; info->words[i] != NULL && used < 128; i++)
        used += (size_t)snprintf(out + used, 128 - used, "%s%s", i == 0 ? "" : "|", info->words[i]);
    return out;
}

/* "--n_layer=N", "--bias[=BOOL]", "--help". */
static void key_form(char out[static 256], const struct config_key_info *info)
{
    char words[128];
    const char *value = value_form(words, info);
    bool bare = info->type == CONFIG_TYPE_BOOL || (info->flags & CONFIG_BARE) != 0;

    if ((info->flags & CONFIG_FLAG_ONLY) != 0)
        snprintf(out, 256, "--%s", info->name);
    else
        snprintf(out, 256, bare ? "--%s[=%s]" : "--%s=%s", info->name, value);
}

/* A space at which no line is broken. */
#define HARD_SPACE '\x1f'

/* "help text (default 12)", with a hard space before the default. */
static void key_text(char out[static 512], const struct config *defaults, enum config_key key)
{
    const struct config_key_info *info = config_key_info_get(key);
    struct config_value value = config_key_value(defaults, key);
    char text[CONFIG_VALUE_TEXT_MAX];

    if ((info->flags & CONFIG_FLAG_ONLY) != 0)
        snprintf(out, 512, "%s", info->help);
    else if (info->type == CONFIG_TYPE_CHOICE)
        snprintf(out, 512, "%s (default%c%s)", info->help, HARD_SPACE, value.text);
    else
        snprintf(out, 512, "%s (default%c%s)", info->help, HARD_SPACE, config_key_text(text, defaults, key));
}

static bool is_listed(const struct config_key_info *info, enum config_group group, enum config_program program)
{
    return info->group == group && (info->programs & (unsigned)program) != 0;
}

static bool group_has_keys(enum config_group group, enum config_program program)
{
    for (int key = 0; key < CONFIG_KEY_COUNT; key++)
        if (is_listed(config_key_info_get((enum config_key)key), group, program))
            return true;
    return false;
}

/* Puts the words of `text` from `indent` on; a word too long for any line stands alone on one. */
static void fold(struct folder *folder, int indent, const char *text)
{
    while (*text != '\0') {
        int length = (int)strcspn(text, " ");
        if (folder->column > indent && folder->column + 1 + length > HELP_WIDTH) {
            fputc('\n', folder->stream);
            folder->column = 0;
        }
        if (folder->column < indent) {
            fprintf(folder->stream, "%*s", indent - folder->column, "");
            folder->column = indent;
        } else if (folder->column > indent) {
            fputc(' ', folder->stream);
            folder->column++;
        }
        for (int i = 0; i < length; i++)
            fputc(text[i] == HARD_SPACE ? ' ' : text[i], folder->stream);
        folder->column += length;
        text += length;
        text += strspn(text, " ");
    }
    fputc('\n', folder->stream);
    folder->column = 0;
}

static void help_key(FILE *stream, const struct config *defaults, enum config_key key)
{
    struct folder folder = {stream, 0};
    char form[256];
    char text[512];

    key_form(form, config_key_info_get(key));
    key_text(text, defaults, key);
    folder.column = 2 + (int)strlen(form);
    fprintf(stream, "  %s", form);
    if (folder.column + 2 > HELP_INDENT) {
        fputc('\n', stream);
        folder.column = 0;
    }
    fold(&folder, HELP_INDENT, text);
}

static void help_head(FILE *stream, enum config_program program)
{
    if (program == CONFIG_SAMPLE) {
        fprintf(stream, "usage: gpt-sample [CONFIG.py ...] [--key=value | --key value ...]\n\n"
                        "Writes text with a model that gpt-train trained.\n");
    } else {
        fprintf(stream, "usage: gpt-train [CONFIG.py ...] [--key=value | --key value ...]\n\n"
                        "Trains a GPT. Memory is planned before the first step.\n");
    }
    fprintf(stream, "Files and flags are read from left to right; the last word wins. Files are in nanoGPT's syntax,\n"
                    "NAME = VALUE, and are never executed. - and _ are the same in a flag; a BOOL is True or False\n"
                    "(true, false, 1, 0, yes, no), and the flag alone means True.\n");
}

void config_print_help(FILE *stream, enum config_program program)
{
    struct config defaults;

    config_defaults(&defaults, program);
    help_head(stream, program);
    for (int group = 0; group < CONFIG_GROUP_COUNT; group++) {
        if (!group_has_keys((enum config_group)group, program))
            continue;
        fprintf(stream, "\n%s\n", config_group_title((enum config_group)group));
        for (int key = 0; key < CONFIG_KEY_COUNT; key++)
            if (is_listed(config_key_info_get((enum config_key)key), (enum config_group)group, program))
                help_key(stream, &defaults, (enum config_key)key);
    }
    fprintf(stream, "\nExit status: 0 done, 1 failure, 2 bad key, value or file, 3 does not fit the memory,\n"
                    "128+N stopped by signal N after saving.\n");
}

/* `text` with roff's own characters escaped. */
static void put_roff(FILE *stream, const char *text)
{
    for (; *text != '\0'; text++) {
        if (*text == '\\')
            fputs("\\e", stream);
        else if (*text == '-')
            fputs("\\-", stream);
        else if (*text == '\'')
            fputs("\\(aq", stream);
        else if (*text == HARD_SPACE)
            fputs("\\ ", stream);
        else
            fputc(*text, stream);
    }
}

static void man_key(FILE *stream, const struct config *defaults, enum config_key key)
{
    char form[256];
    char text[512];

    key_form(form, config_key_info_get(key));
    key_text(text, defaults, key);
    fputs(".TP\n.B ", stream);
    put_roff(stream, form);
    /* \& keeps a first character that is a dot from being a request. */
    fputs("\n\\&", stream);
    put_roff(stream, text);
    fputs(".\n", stream);
}

void config_print_man(FILE *stream, enum config_program program)
{
    struct config defaults;

    config_defaults(&defaults, program);
    for (int group = 0; group < CONFIG_GROUP_COUNT; group++) {
        if (!group_has_keys((enum config_group)group, program))
            continue;
        fputs(".SS ", stream);
        put_roff(stream, config_group_title((enum config_group)group));
        fputc('\n', stream);
        for (int key = 0; key < CONFIG_KEY_COUNT; key++)
            if (is_listed(config_key_info_get((enum config_key)key), (enum config_group)group, program))
                man_key(stream, &defaults, (enum config_key)key);
    }
}
