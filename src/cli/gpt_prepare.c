/* gpt-prepare: turns text files and folders into a data set for gpt-train.
 *
 * This file reads the command line, draws the progress line and chooses the exit status; data/prepare.c does the work.
 * Flags are --name=value or --name value; '-' equals '_'.  They may follow inputs; "--" ends them.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/hostmem.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/status.h"
#include "cli/exit_status.h"
#include "cli/flags.h"
#include "cli/prepare_suggest.h"
#include "data/bpe_train.h"
#include "data/prepare.h"
#include "data/tokenizer_find.h"

#define PROGRAM "gpt-prepare"

#define VOCAB_SIZE_DEFAULT 8192
#define SEED_DEFAULT 1337

struct arguments {
    bool help, version;
    const char *tokenizer; /* as given: bytes, chars, train, gpt2 or a path */
    bool vocab_size_given;
    const char *out_dir; /* NULL: out_dir_default */
    const char **inputs; /* argv, compacted in place */
    size_t input_count;
    struct prepare_spec spec;
    char out_dir_default[FILE_PATH_MAX];
};

struct progress_line {
    struct progress progress;
    int64_t started_ns; /* 0: not started */
    uint64_t started_bytes;
};

static enum gt_status arguments_read(struct arguments *arguments, int argc, char **argv);
static enum gt_status prepare_dataset(struct arguments *arguments);
static void print_help(void);

int main(int argc, char **argv)
{
    struct arguments arguments = {
        .tokenizer = "bytes", .spec = {.val_fraction = 0.1, .seed = SEED_DEFAULT, .vocab_size = VOCAB_SIZE_DEFAULT}};
    program_begin(PROGRAM);
    enum gt_status status = arguments_read(&arguments, argc, argv);
    if (status == GT_OK && arguments.help)
        print_help();
    else if (status == GT_OK && arguments.version)
        program_version_print(PROGRAM);
    else if (status == GT_OK)
        status = prepare_dataset(&arguments);
    return program_exit_status(status);
}

static void print_help(void)
{
    fputs("Usage: gpt-prepare [OPTION]... INPUT...\n"
          "\n"
          "Makes a data set for gpt-train from text: train.bin, val.bin,\n"
          "gpt_tokenizer.json and manifest.json.\n"
          "\n"
          "  gpt-prepare book.txt                      # a token is a byte\n"
          "  gpt-prepare --tokenizer=gpt2 notes/ --out-dir=data/mine\n"
          "  gpt-prepare --encoding=latin1 alt.txt     # text that is not UTF-8\n"
          "\n"
          "An INPUT is a text file; a .jsonl file; either of them compressed (.gz .xz\n"
          ".zst .bz2); a .tar of such files; a folder, which stands for the text files\n"
          "below it; or -, standard input.  Give the same command again to continue a\n"
          "run that was stopped.\n"
          "\n"
          "Tokens and output\n"
          "  --tokenizer=WHICH      bytes (default), chars, gpt2, train (make a byte-pair\n"
          "                         encoding from the inputs), or a vocabulary's path\n"
          "  --vocab-size=N         of --tokenizer=train; default 8192\n"
          "  --out-dir=DIR          default data/NAME, where NAME is that of the first\n"
          "                         INPUT without its extension\n"
          "  --shard-tokens=N       write train_000001.bin, ... of N tokens each, as\n"
          "                         llm.c does\n"
          "\n"
          "Reading\n"
          "  --encoding=NAME        of texts that are not UTF-8: latin1, windows-1252,\n"
          "                         SHIFT_JIS, ... (iconv -l lists them); UTF-16 is\n"
          "                         recognised by its byte-order mark\n"
          "  --format=WHICH         auto (default) goes by the name (.jsonl, .ndjson, else\n"
          "                         text) and refuses what is no text; text; jsonl\n"
          "  --field=NAME           the JSON field that holds the document; default text\n"
          "  --bad-lines=stop|skip  what to do about a bad JSON line; default stop\n"
          "  --documents=WHICH      a text is one document: file (default); or documents\n"
          "                         end at a blank-line, or at <|endoftext|>: end-of-text\n"
          "  --document-separator=WHICH\n"
          "                         auto (default), none, newline, or an end-of-text token\n"
          "                         before, between or after documents; auto is newline\n"
          "                         for bytes and chars, none for a single text, else\n"
          "                         after\n"
          "  --dedup                leave out exact copies of earlier documents\n"
          "\n"
          "Validation\n"
          "  --val-fraction=F       the share kept for validation; default 0.1; with 0,\n"
          "                         everything is for training\n"
          "  --val-split=WHICH      position: the end of the text; document: documents\n"
          "                         drawn by their content; auto (default): document for\n"
          "                         JSONL, archives and --documents, else position\n"
          "  --seed=N               of that draw; default 1337\n"
          "\n"
          "Running\n"
          "  --threads=N            default: one for each processor\n"
          "  --save-every=MIB       how much text a stopped run may lose; default 512\n"
          "  --restart              begin again instead of continuing a stopped run\n"
          "  -h, --help, --version\n"
          "\n"
          "Exit status: 0 done, 1 a failure while running, 2 a bad flag or input.\n",
          stdout);
}

/* ---- values of flags ---- */

static enum gt_status read_number(const char *flag, const char *value, uint64_t min, uint64_t max, uint64_t *out)
{
    char *end = NULL;
    errno = 0;
    const unsigned long long number = strtoull(value, &end, 10);
    if (value[0] < '0' || value[0] > '9' || *end != '\0' || errno != 0 || number < min || number > max) {
        log_error("--%s=%s: expected a whole number from %" PRIu64 " to %" PRIu64, flag, value, min, max);
        return GT_USAGE;
    }
    *out = number;
    return GT_OK;
}

/* Finds the index of `value` in `words`, which ends with NULL. */
static enum gt_status read_word(const char *flag, const char *value, const char *const *words, int *out)
{
    char all[128] = "";
    for (int i = 0; words[i] != NULL; i++) {
        if (strcmp(value, words[i]) == 0) {
            *out = i;
            return GT_OK;
        }
        const size_t used = strlen(all);
        snprintf(all + used, sizeof all - used, "%s%s", i > 0 ? ", " : "", words[i]);
    }
    log_error("--%s=%s: expected one of %s", flag, value, all);
    return GT_USAGE;
}

static enum gt_status read_tokenizer(void *to, const char *value)
{
    struct arguments *arguments = to;
    if (value[0] == '\0')
        return flags_error(PROGRAM, "expected bytes, chars, gpt2, train or a path", "--tokenizer");
    arguments->tokenizer = value;
    return GT_OK;
}

static enum gt_status read_vocab_size(void *to, const char *value)
{
    struct arguments *arguments = to;
    uint64_t number = 0;
    TRY(read_number("vocab-size", value, BPE_TRAIN_VOCAB_MIN, BPE_TRAIN_VOCAB_MAX, &number));
    arguments->spec.vocab_size = (int64_t)number;
    arguments->vocab_size_given = true;
    return GT_OK;
}

static enum gt_status read_val_fraction(void *to, const char *value)
{
    struct arguments *arguments = to;
    char *end = NULL;
    const double fraction = strtod(value, &end);
    if (end == value || *end != '\0' || !(fraction >= 0 && fraction < 1)) {
        log_error("--val-fraction=%s: expected a number from 0 to below 1", value);
        return GT_USAGE;
    }
    arguments->spec.val_fraction = fraction;
    return GT_OK;
}

static enum gt_status read_out_dir(void *to, const char *value)
{
    struct arguments *arguments = to;
    if (value[0] == '\0')
        return flags_error(PROGRAM, "expected a folder", "--out-dir");
    arguments->out_dir = value;
    return GT_OK;
}

static enum gt_status read_format(void *to, const char *value)
{
    struct arguments *arguments = to;
    static const char *const words[] = {"auto", "text", "jsonl", NULL};
    int word = 0;
    TRY(read_word("format", value, words, &word));
    arguments->spec.format = (enum documents_format)word;
    return GT_OK;
}

static enum gt_status read_field(void *to, const char *value)
{
    struct arguments *arguments = to;
    arguments->spec.field = value;
    return value[0] != '\0' ? GT_OK : flags_error(PROGRAM, "expected the name of a field", "--field");
}

static enum gt_status read_encoding(void *to, const char *value)
{
    struct arguments *arguments = to;
    arguments->spec.encoding = value;
    return value[0] != '\0' ? GT_OK : flags_error(PROGRAM, "expected the name of an encoding", "--encoding");
}

static enum gt_status read_bad_lines(void *to, const char *value)
{
    struct arguments *arguments = to;
    static const char *const words[] = {"stop", "skip", NULL};
    int word = 0;
    TRY(read_word("bad-lines", value, words, &word));
    arguments->spec.skip_bad_lines = word == 1;
    return GT_OK;
}

static enum gt_status read_documents(void *to, const char *value)
{
    struct arguments *arguments = to;
    const char *words[DOCUMENTS_END_COUNT + 1] = {NULL};
    int word = 0;
    for (int i = 0; i < DOCUMENTS_END_COUNT; i++)
        words[i] = documents_end_name((enum documents_end)i);
    TRY(read_word("documents", value, words, &word));
    arguments->spec.end = (enum documents_end)word;
    return GT_OK;
}

static enum gt_status read_separator(void *to, const char *value)
{
    struct arguments *arguments = to;
    const char *words[PREPARE_SEPARATOR_COUNT + 1] = {NULL};
    int word = 0;
    for (int i = 0; i < PREPARE_SEPARATOR_COUNT; i++)
        words[i] = prepare_separator_name((enum prepare_separator)i);
    TRY(read_word("document-separator", value, words, &word));
    arguments->spec.separator = (enum prepare_separator)word;
    return GT_OK;
}

static enum gt_status read_val_split(void *to, const char *value)
{
    struct arguments *arguments = to;
    const char *words[PREPARE_SPLIT_COUNT + 1] = {NULL};
    int word = 0;
    for (int i = 0; i < PREPARE_SPLIT_COUNT; i++)
        words[i] = prepare_split_name((enum prepare_split)i);
    TRY(read_word("val-split", value, words, &word));
    arguments->spec.split = (enum prepare_split)word;
    return GT_OK;
}

static enum gt_status read_seed(void *to, const char *value)
{
    struct arguments *arguments = to;
    return read_number("seed", value, 0, INT64_MAX, &arguments->spec.seed);
}

static enum gt_status read_shard_tokens(void *to, const char *value)
{
    struct arguments *arguments = to;
    uint64_t number = 0;
    TRY(read_number("shard-tokens", value, 1, INT32_MAX, &number));
    arguments->spec.shard_tokens = (int64_t)number;
    return GT_OK;
}

static enum gt_status read_threads(void *to, const char *value)
{
    struct arguments *arguments = to;
    uint64_t number = 0;
    TRY(read_number("threads", value, 1, PREPARE_THREADS_MAX, &number));
    arguments->spec.threads = (int)number;
    return GT_OK;
}

static enum gt_status read_save_every(void *to, const char *value)
{
    struct arguments *arguments = to;
    uint64_t number = 0;
    TRY(read_number("save-every", value, 1, (uint64_t)1 << 40, &number));
    arguments->spec.save_every_bytes = number << 20;
    return GT_OK;
}

/* ---- the command line ---- */

static const struct flag_value value_flags[] = {{"tokenizer", read_tokenizer},
                                                {"vocab-size", read_vocab_size},
                                                {"out-dir", read_out_dir},
                                                {"format", read_format},
                                                {"field", read_field},
                                                {"encoding", read_encoding},
                                                {"bad-lines", read_bad_lines},
                                                {"documents", read_documents},
                                                {"document-separator", read_separator},
                                                {"val-fraction", read_val_fraction},
                                                {"val-split", read_val_split},
                                                {"seed", read_seed},
                                                {"shard-tokens", read_shard_tokens},
                                                {"threads", read_threads},
                                                {"save-every", read_save_every},
                                                {NULL, NULL}};

/* Sets out_dir to data/NAME, where NAME is the last component of `input` without its extension. */
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
    end = stem_end > begin + 1 ? stem_end - 1 : end; /* a leading dot does not begin an extension */
    const size_t length = end - begin;
    const bool dots = length > 0 && strspn(input + begin, ".") >= length;
    if (length == 0 || dots || length >= sizeof name || strcmp(input, CORPUS_STDIN) == 0) {
        log_error("INPUT %s: choose a folder for the data set: give --out-dir=DIR", input);
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
    const struct flag_switch switches[] = {{"help", &arguments->help},
                                           {"version", &arguments->version},
                                           {"dedup", &arguments->spec.dedup},
                                           {"restart", &arguments->spec.restart},
                                           {NULL, NULL}};
    const struct flags known = {PROGRAM, arguments, switches, value_flags};
    bool flags = true;
    arguments->inputs = (const char **)argv;
    for (int i = 1; i < argc; i++) {
        if (flags && strcmp(argv[i], "--") == 0)
            flags = false;
        else if (flags && argv[i][0] == '-' && strcmp(argv[i], CORPUS_STDIN) != 0)
            TRY(flags_read(&known, argc, argv, &i));
        else
            arguments->inputs[arguments->input_count++] = argv[i];
    }
    if (arguments->help || arguments->version)
        return GT_OK;
    if (arguments->input_count == 0)
        return flags_error(PROGRAM, "name a text file or a folder", "no input files given");
    if (arguments->vocab_size_given && strcmp(arguments->tokenizer, "train") != 0)
        return flags_error(PROGRAM, "needs --tokenizer=train", "--vocab-size");
    if (arguments->out_dir == NULL)
        return out_dir_from_input(arguments, arguments->inputs[0]);
    return GT_OK;
}

/* ---- progress ---- */

static void progress_show_bytes(void *context, uint64_t done_bytes, uint64_t total_bytes)
{
    struct progress_line *line = context;
    const int64_t now_ns = clock_monotonic_ns();
    if (line->started_ns == 0) {
        line->started_ns = now_ns;
        line->started_bytes = done_bytes;
    }
    char text[24], count[32], note[32] = "";
    const double elapsed_s = (double)(now_ns - line->started_ns) * 1e-9;
    const double rate = elapsed_s > 0 ? (double)(done_bytes - line->started_bytes) / elapsed_s : 0;
    if (total_bytes > 0)
        snprintf(count, sizeof count, "of %s", log_bytes(text, (double)total_bytes));
    else
        snprintf(count, sizeof count, "%s", log_bytes(text, (double)done_bytes));
    if (rate > 0)
        snprintf(note, sizeof note, "%.1f MB/s", rate * 1e-6);
    const struct progress_view view = {
        .what = PROGRAM,
        .fraction = total_bytes > 0 ? (double)done_bytes / (double)total_bytes : -1.0,
        .count = count,
        .note = note,
        .seconds_left = rate > 0 && total_bytes > done_bytes ? (double)(total_bytes - done_bytes) / rate : -1.0};
    progress_draw(&line->progress, &view);
}

/* ---- the report ---- */

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

/* "1 document", "3 documents" */
static char *counted(char text[static 64], uint64_t count, const char *noun)
{
    char number[32];
    snprintf(text, 64, "%s %s%s", count_text(number, (int64_t)count), noun, count == 1 ? "" : "s");
    return text;
}

static void report_counts(const struct prepare_result *result)
{
    char first[64], second[64], kinds[PREPARE_KINDS_TEXT_BYTES];
    if (result->many_documents)
        log_result("%s, %s left out", counted(first, result->document_count - result->duplicate_count, "document"),
                   counted(second, result->empty_count, "empty one"));
    if (result->duplicate_count > 0)
        log_result("%s left out", counted(first, result->duplicate_count, "exact duplicate"));
    if (result->bad_line_count > 0)
        log_warning("%s left out", counted(first, result->bad_line_count, "bad line"));
    if (result->skipped_count > 0)
        log_note("%s left out, not text: %s (give one as INPUT to see why)",
                 counted(first, result->skipped_count, "file"), prepare_kinds_text(kinds, result->kinds));
    if (result->invalid_byte_count > 0)
        log_warning("not UTF-8: %s in %s, kept as they are; --encoding=NAME converts text",
                    counted(first, result->invalid_byte_count, "byte"),
                    counted(second, result->invalid_document_count, "document"));
    if (result->zero_document_count > 0)
        log_warning("zero bytes in %s, kept; text in UTF-16 needs --encoding=UTF-16LE or UTF-16BE",
                    counted(first, result->zero_document_count, "document"));
}

/* Forced cuts matter only for byte-pair encodings, where a token could span the cut. */
static void report_cuts(const struct arguments *arguments, const struct prepare_result *result)
{
    char count[64];
    if (arguments->spec.tokenizer == TOKENIZER_BPE && result->forced_cut_count > 0)
        log_note("256 KiB of text without a space were cut before tokenizing, in %s",
                 counted(count, result->forced_cut_count, "place"));
    if (arguments->spec.dedup && result->long_count > 0)
        log_note("%s longer than %zu MiB not compared with others", counted(count, result->long_count, "document"),
                 DOCUMENT_BYTES_MAX >> 20);
}

static void report_result(const struct arguments *arguments, const struct prepare_result *result)
{
    char vocab[32], files[64], tokens[64];
    report_counts(result);
    report_cuts(arguments, result);
    log_result("%s, tokenizer %s, vocab size: %s", counted(files, result->file_count, "file"),
               tokenizer_kind_name(arguments->spec.tokenizer), count_text(vocab, result->vocab_size));
    log_result("train has %s", counted(tokens, (uint64_t)result->train_tokens, "token"));
    log_result("val has %s", counted(tokens, (uint64_t)result->val_tokens, "token"));
    log_result("written to %s", arguments->out_dir);
    prepare_suggest(arguments->out_dir, result);
}

/* ---- the work ---- */

/* Loads an existing vocabulary; the other kinds are made from the text. */
static enum gt_status tokenizer_open(struct hostmem *mem, struct arguments *arguments, struct tokenizer **out)
{
    const char *name = arguments->tokenizer;
    arguments->spec.tokenizer = TOKENIZER_BPE;
    if (strcmp(name, "bytes") == 0 || strcmp(name, "chars") == 0)
        arguments->spec.tokenizer = strcmp(name, "bytes") == 0 ? TOKENIZER_BYTES : TOKENIZER_CHARS;
    if (arguments->spec.tokenizer != TOKENIZER_BPE || strcmp(name, "train") == 0)
        return GT_OK;
    TRY(tokenizer_find(mem, name, out));
    if (tokenizer_kind_of(*out) == TOKENIZER_BPE)
        return GT_OK;
    log_error("--tokenizer=%s: this vocabulary is of kind %s, which is made from the inputs; give --tokenizer=%s", name,
              tokenizer_kind_name(tokenizer_kind_of(*out)), tokenizer_kind_name(tokenizer_kind_of(*out)));
    return GT_USAGE;
}

static enum gt_status prepare_dataset(struct arguments *arguments)
{
    struct hostmem *mem = NULL;
    struct tokenizer *given = NULL;
    struct progress_line line = {.started_ns = 0};
    struct prepare_spec *spec = &arguments->spec;
    struct prepare_result result;
    TRY(hostmem_create(&mem));
    enum gt_status status = tokenizer_open(mem, arguments, &given);
    if (status == GT_OK) {
        spec->given = given;
        spec->inputs = arguments->inputs;
        spec->input_count = arguments->input_count;
        spec->out_dir = arguments->out_dir;
        progress_init(&line.progress);
        spec->progress = line.progress.terminal ? progress_show_bytes : NULL;
        spec->progress_context = &line;
        status = prepare_run(mem, spec, &result);
        progress_clear(&line.progress);
    }
    if (status == GT_OK)
        report_result(arguments, &result);
    hostmem_phase_set(mem, HOSTMEM_CLOSE);
    tokenizer_destroy(given);
    hostmem_destroy(mem);
    return status;
}
