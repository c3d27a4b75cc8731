/* gpt-prepare: text files and folders in, a data set for gpt-train out.
 *
 * This file reads the command line, draws the progress line and chooses the exit status; data/prepare.c does the work.
 * Flags are --name=value or --name value, '-' and '_' alike, and may stand after inputs; "--" ends them.
 */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/hostmem.h"
#include "base/log.h"
#include "base/status.h"
#include "data/prepare.h"

#ifndef PACKAGE_VERSION
#define PACKAGE_VERSION "(unconfigured)"
#endif

#define PROGRESS_INTERVAL_NS INT64_C(100000000)

struct arguments {
    bool help, version;
    enum tokenizer_kind tokenizer;
    double val_fraction;
    const char *out_dir; /* NULL: out_dir_default */
    const char **inputs; /* argv, compacted in place */
    size_t input_count;
    char out_dir_default[FILE_PATH_MAX];
};

struct progress_line {
    int64_t drawn_ns; /* 0: never */
};

static enum gt_status arguments_read(struct arguments *arguments, int argc, char **argv);
static enum gt_status prepare_dataset(const struct arguments *arguments);
static void print_help(void);

int main(int argc, char **argv)
{
    struct arguments arguments = {.tokenizer = TOKENIZER_BYTES, .val_fraction = 0.1};
    log_program_set("gpt-prepare");
    enum gt_status status = arguments_read(&arguments, argc, argv);
    if (status != GT_OK)
        return status_exit_code(status);
    if (arguments.help || arguments.version) {
        if (arguments.help)
            print_help();
        else
            printf("gpt-prepare (gpt-train) %s\n", PACKAGE_VERSION);
        if (fflush(stdout) != 0) {
            log_error("standard output: %s", strerror(errno));
            status = GT_IO;
        }
        return status_exit_code(status);
    }
    return status_exit_code(prepare_dataset(&arguments));
}

static void print_help(void)
{
    fputs("Usage: gpt-prepare [OPTION]... INPUT...\n"
          "\n"
          "Makes a data set for gpt-train from text: train.bin, val.bin, gpt_tokenizer.json and manifest.json.\n"
          "An INPUT is a file, or a folder, which stands for the text files below it, sorted by path; hidden\n"
          "and binary files in it are left out.\n"
          "\n"
          "  --tokenizer=bytes|chars   what a token is: a byte, or a character of the text (UTF-8); default bytes\n"
          "  --val-fraction=F          the last part of the tokens is kept for validation; default 0.1\n"
          "  --out-dir=DIR             where the data set goes; default data/NAME, NAME being that of the first\n"
          "                            INPUT without its extension, so that gpt-train --dataset=NAME finds it\n"
          "  --help, --version\n"
          "\n"
          "Exit status: 0 done, 1 a failure while running, 2 a bad flag or input.\n"
          "\n"
          "  gpt-prepare --tokenizer=chars shakespeare.txt\n"
          "  gpt-train --dataset=shakespeare\n",
          stdout);
}

/* ---- the command line ---- */

static enum gt_status usage_error(const char *what, const char *argument)
{
    log_error("%s: %s; gpt-prepare --help lists the flags", argument, what);
    return GT_USAGE;
}

/* True when `flag` (up to its '=') is --`name`, with '-' and '_' alike. */
static bool flag_is(const char *flag, const char *name)
{
    size_t i = 0;
    for (; name[i] != '\0'; i++)
        if ((flag[2 + i] == '_' ? '-' : flag[2 + i]) != name[i])
            return false;
    return flag[2 + i] == '\0' || flag[2 + i] == '=';
}

static enum gt_status read_tokenizer(struct arguments *arguments, const char *value)
{
    for (int kind = 0; kind < TOKENIZER_KIND_COUNT; kind++)
        if (strcmp(value, tokenizer_kind_name((enum tokenizer_kind)kind)) == 0) {
            arguments->tokenizer = (enum tokenizer_kind)kind;
            return GT_OK;
        }
    log_error("--tokenizer=%s: this release has bytes and chars", value);
    return GT_USAGE;
}

static enum gt_status read_val_fraction(struct arguments *arguments, const char *value)
{
    char *end = NULL;
    const double fraction = strtod(value, &end);
    if (end == value || *end != '\0' || !(fraction > 0 && fraction < 1)) {
        log_error("--val-fraction=%s: expected a number above 0 and below 1", value);
        return GT_USAGE;
    }
    arguments->val_fraction = fraction;
    return GT_OK;
}

static enum gt_status read_out_dir(struct arguments *arguments, const char *value)
{
    if (value[0] == '\0')
        return usage_error("expected a folder", "--out-dir");
    arguments->out_dir = value;
    return GT_OK;
}

/* Reads the flag argv[*at], and its value from the next argument where it has none of its own. */
static enum gt_status flag_read(struct arguments *arguments, int argc, char **argv, int *at)
{
    const char *flag = argv[*at];
    const char *equals = strchr(flag, '=');
    const bool tokenizer = flag_is(flag, "tokenizer"), val_fraction = flag_is(flag, "val-fraction");
    if (flag_is(flag, "help") || flag_is(flag, "version")) {
        if (equals != NULL)
            return usage_error("takes no value", flag);
        *(flag_is(flag, "help") ? &arguments->help : &arguments->version) = true;
        return GT_OK;
    }
    if (!tokenizer && !val_fraction && !flag_is(flag, "out-dir"))
        return usage_error("no such flag", flag);
    if (equals == NULL && *at + 1 >= argc)
        return usage_error("needs a value", flag);
    const char *value = equals != NULL ? equals + 1 : argv[++*at];
    if (tokenizer)
        return read_tokenizer(arguments, value);
    return val_fraction ? read_val_fraction(arguments, value) : read_out_dir(arguments, value);
}

/* data/NAME from the last component of `input`, without slashes after it and without its extension. */
static enum gt_status out_dir_from_input(struct arguments *arguments, const char *input)
{
    char name[FILE_PATH_MAX];
    size_t end = strlen(input);
    while (end > 0 && input[end - 1] == '/')
        end--;
    size_t begin = end;
    while (begin > 0 && input[begin - 1] != '/')
        begin--;
    size_t stem_end = end;
    while (stem_end > begin && input[stem_end - 1] != '.')
        stem_end--;
    end = stem_end > begin + 1 ? stem_end - 1 : end; /* a dot in front is no extension */
    const size_t length = end - begin;
    const bool dots = length > 0 && strspn(input + begin, ".") >= length;
    if (length == 0 || dots || length >= sizeof name) {
        log_error("INPUT %s: no name for a data set can be made from this; give --out-dir=DIR", input);
        return GT_USAGE;
    }
    memcpy(name, input + begin, length);
    name[length] = '\0';
    TRY(file_join(arguments->out_dir_default, "data", name));
    arguments->out_dir = arguments->out_dir_default;
    return GT_OK;
}

static enum gt_status arguments_read(struct arguments *arguments, int argc, char **argv)
{
    bool flags = true;
    arguments->inputs = (const char **)argv;
    for (int i = 1; i < argc; i++) {
        if (flags && strcmp(argv[i], "--") == 0)
            flags = false;
        else if (flags && strncmp(argv[i], "--", 2) == 0)
            TRY(flag_read(arguments, argc, argv, &i));
        else if (flags && argv[i][0] == '-')
            return usage_error("no such flag", argv[i]);
        else
            arguments->inputs[arguments->input_count++] = argv[i];
    }
    if (arguments->help || arguments->version)
        return GT_OK;
    if (arguments->input_count == 0)
        return usage_error("missing", "INPUT");
    if (arguments->out_dir == NULL)
        return out_dir_from_input(arguments, arguments->inputs[0]);
    return GT_OK;
}

/* ---- the work ---- */

/* Redraws the line at most ten times a second; the end is drawn by progress_clear(). */
static void progress_draw(void *context, uint64_t done_bytes, uint64_t total_bytes)
{
    struct progress_line *line = context;
    const int64_t now_ns = clock_monotonic_ns();
    if (total_bytes == 0 || (line->drawn_ns != 0 && now_ns - line->drawn_ns < PROGRESS_INTERVAL_NS))
        return;
    char total[24];
    /* Every byte is read twice. */
    log_bytes(total, (double)total_bytes / 2);
    fprintf(stderr, "\rgpt-prepare: %3d %% of %s ", (int)(100.0 * (double)done_bytes / (double)total_bytes), total);
    fflush(stderr);
    line->drawn_ns = now_ns;
}

static void progress_clear(const struct progress_line *line)
{
    if (line->drawn_ns != 0)
        fputs("\r\033[K", stderr);
}

/* 1003854 -> "1,003,854" */
static char *count_text(char text[static 32], int64_t count)
{
    char digits[24];
    const int length = snprintf(digits, sizeof digits, "%" PRId64, count);
    int out = 0;
    for (int i = 0; i < length; i++) {
        if (i > 0 && (length - i) % 3 == 0)
            text[out++] = ',';
        text[out++] = digits[i];
    }
    text[out] = '\0';
    return text;
}

static void report_result(const struct arguments *arguments, const struct prepare_result *result)
{
    char vocab[32], train[32], val[32];
    const char *dataset = arguments->out_dir;
    /* A name without a slash would be looked for below data/. */
    const char *here = strchr(dataset, '/') ? "" : "./";
    if (strncmp(dataset, "data/", 5) == 0 && strchr(dataset + 5, '/') == NULL)
        dataset += 5;
    log_result("%zu file%s, tokenizer %s, vocab size: %s", result->file_count, result->file_count == 1 ? "" : "s",
               tokenizer_kind_name(arguments->tokenizer), count_text(vocab, result->vocab_size));
    log_result("train has %s tokens", count_text(train, result->train_tokens));
    log_result("val has %s tokens", count_text(val, result->val_tokens));
    log_result("written to %s; train on it with: gpt-train --dataset=%s%s", arguments->out_dir, here, dataset);
}

static enum gt_status prepare_dataset(const struct arguments *arguments)
{
    struct hostmem *mem = NULL;
    TRY(hostmem_create(&mem));
    struct progress_line line = {.drawn_ns = 0};
    const struct prepare_spec spec = {.inputs = arguments->inputs,
                                      .input_count = arguments->input_count,
                                      .out_dir = arguments->out_dir,
                                      .tokenizer = arguments->tokenizer,
                                      .val_fraction = arguments->val_fraction,
                                      .progress = isatty(STDERR_FILENO) ? progress_draw : NULL,
                                      .progress_context = &line};
    struct prepare_result result;
    const enum gt_status status = prepare_run(mem, &spec, &result);
    progress_clear(&line);
    if (status == GT_OK)
        report_result(arguments, &result);
    hostmem_phase_set(mem, HOSTMEM_CLOSE);
    hostmem_destroy(mem);
    return status;
}
