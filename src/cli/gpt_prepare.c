/* gpt-prepare: turns text files and folders into a data set for gpt-train.
 *
 * This file reads the command line, draws the progress line and chooses the exit status;
 * data/prepare.c does the work. Flags are --name=value or --name value; '-' equals '_'.  They may
 * follow inputs; "--" ends them.
 */
#include "base/clock.h"
#include "base/file.h"
#include "base/hostmem.h"
#include "base/progress.h"
#include "base/thread.h"
#include "cli/program.h"
#include "data/bpe_train.h"
#include "data/chat_kind.h"
#include "data/chat_templates.h"
#include "data/hf_hub.h"
#include "data/prepare.h"
#include "data/prepare_spec.h"
#include "data/tokenizer.h"
#include "io/gguf_model.h"
#include "io/gguf_tokenizer.h"

#define PROGRAM "gpt-prepare"

#define VOCAB_SIZE_DEFAULT 8192
#define SEED_DEFAULT 1337
#define BLOCK_SIZE_DEFAULT 1024
#define BLOCK_SIZE_MAX 131072

struct arguments {
    bool help, version;
    const char *tokenizer; /* as given: bytes, chars, train, gpt2 or a path */
    int64_t save_every_mib, threads;
    int bad_lines;       /* index of "stop", "skip" */
    const char *out_dir; /* NULL: data/NAME */
    const char **inputs; /* argv, compacted in place */
    int input_count;
    struct prepare_spec spec;
    char out_dir_room[FILE_PATH_MAX], tokenizer_room[FILE_PATH_MAX];
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
    struct arguments arguments = {.tokenizer = "bytes",
                                  .spec = {.val_fraction = 0.1, .seed = SEED_DEFAULT}};
    program_begin(PROGRAM);
    enum gt_status status = arguments_read(&arguments, argc, argv);
    if (status == GT_OK && !program_answers(PROGRAM, arguments.help, arguments.version, print_help))
        status = prepare_dataset(&arguments);
    return program_exit_status(status);
}

static void help_conversations_print(void)
{
    fputs("Conversations\n"
          "  --chat                 the inputs are conversations, written in the chat template\n"
          "                         of the model that --tokenizer names: JSON lines, one JSON\n"
          "                         list, CSV or Parquet, in the form messages, ShareGPT,\n"
          "                         Alpaca, prompt and completion, question and answer, or\n"
          "                         text; the first record shows which\n"
          "  --chat=WORD            in another template: chatml (that of --tokenizer=train),\n"
          "                         llama3, smollm2, qwen2, qwen2.5, qwen3, qwen3-instruct,\n"
          "                         qwen3-thinking, qwen3.5, qwen3.5-nothink, smollm3,\n"
          "                         meta-llama3, llama3.1, llama3.2, gemma, gemma3, mistral,\n"
          "                         mistral-nemo, phi3, phi4, phi4-mini\n"
          "  --system=TEXT          the system message for conversations that have none\n"
          "  --train-on=WHICH       what counts in the loss: assistant (default), what the\n"
          "                         assistant says, but no message with \"weight\": 0;\n"
          "                         completion, its last answer; all, everything\n"
          "  --block-size=N         pack them into rows of N tokens, gpt-train's block_size;\n"
          "                         default 1024; longer ones are cut, and left out if no\n"
          "                         answer is left\n"
          "\n",
          stdout);
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
          "                         encoding from the inputs), a vocabulary's path (also\n"
          "                         the folder of a Llama 3, Qwen or SmolLM model, or GGUF), or\n"
          "                         OWNER/NAME, a model in Hugging Face's cache\n"
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
          "                         text) and refuses what is not text; text; jsonl, which also\n"
          "                         reads a JSON list and a column of CSV or TSV\n"
          "  --field=NAME           the field or column that holds the document; default text\n"
          "  --bad-lines=stop|skip  what to do about a bad JSON line; default stop\n"
          "  --documents=WHICH      a text is one document: file (default); or documents\n"
          "                         end at a blank-line, or at <|endoftext|>: end-of-text\n"
          "  --document-separator=WHICH\n"
          "                         auto (default), none, newline, or an end-of-text token\n"
          "                         before, between or after documents; auto is newline\n"
          "                         for bytes and chars, none for a single text, else\n"
          "                         after\n"
          "  --dedup                leave out exact copies of earlier documents\n"
          "\n",
          stdout);
    help_conversations_print();
    fputs("Validation\n"
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

/* ---- the command line ---- */

/* Sets out_dir to data/NAME, where NAME is the last component of `input` without its extension. */
static enum gt_status out_dir_from_input(struct arguments *arguments, const char *input)
{
    char path[FILE_PATH_MAX];
    TRY(file_trim(path, input));
    const char *name = file_name_of(path);
    char *dot = strrchr(path, '.');
    if (dot != NULL && dot > name) /* a leading dot does not begin an extension */
        *dot = '\0';
    if (name[strspn(name, ".")] == '\0' || strcmp(input, CORPUS_STDIN) == 0)
        return FAIL(GT_USAGE, "INPUT %s: choose a folder for the data set: give --out-dir=DIR",
                    input);
    arguments->out_dir = file_join(arguments->out_dir_room, "data", name);
    return GT_OK;
}

/* Checks combinations, and fills in what depends on several flags. */
static enum gt_status arguments_finish(struct arguments *arguments)
{
    struct prepare_spec *spec = &arguments->spec;
    if (arguments->input_count == 0)
        return flags_error(PROGRAM, "name a text file or a folder", "no input files given");
    if (spec->vocab_size != 0 && strcmp(arguments->tokenizer, "train") != 0)
        return flags_error(PROGRAM, "needs --tokenizer=train", "--vocab-size");
    if (spec->block_size != 0 && spec->chat == CHAT_NONE)
        return flags_error(PROGRAM, "needs --chat", "--block-size");
    if (spec->system != NULL && spec->chat == CHAT_NONE)
        return flags_error(PROGRAM, "needs --chat", "--system");
    if (spec->train_on != CHAT_TRAIN_ASSISTANT && spec->chat == CHAT_NONE)
        return flags_error(PROGRAM, "needs --chat", "--train-on");
    if (spec->block_size % 8 != 0)
        return flags_error(PROGRAM, "must be a multiple of 8", "--block-size");
    if (spec->chat != CHAT_NONE &&
        (spec->separator != PREPARE_SEPARATOR_AUTO || spec->shard_tokens != 0 ||
         spec->split == PREPARE_SPLIT_POSITION || spec->format == DOCUMENTS_TEXT))
        return flags_error(
            PROGRAM,
            "does not go with --document-separator, --shard-tokens, --val-split=position or "
            "--format=text",
            "--chat");
    if (spec->block_size == 0)
        spec->block_size = BLOCK_SIZE_DEFAULT;
    if (spec->vocab_size == 0)
        spec->vocab_size = VOCAB_SIZE_DEFAULT;
    spec->threads = (int)arguments->threads;
    spec->save_every_bytes = (uint64_t)arguments->save_every_mib << 20;
    spec->skip_bad_lines = arguments->bad_lines == 1;
    return arguments->out_dir == NULL ? out_dir_from_input(arguments, arguments->inputs[0]) : GT_OK;
}

/* Flags of other programs: datasets and TRL, axolotl, LLaMA-Factory, mlx-lm, Megatron-LM. */
static const struct flag_answer answers[] = {
    {" max-length max-seq-length max-seq-len seq-length seq-len sequence-len sequence-length "
     "cutoff-len context-length ",
     "write --block-size=N, the tokens of a row of conversations; texts have none"},
    {" val-size val-set-size val-ratio val-split-ratio validation-split test-size test-split-size ",
     "write --val-fraction=0.1, the share for validation"},
    {" output output-dir output-path output-prefix dataset-prepared-path save-path ",
     "write --out-dir=DIR"},
    {" input inputs input-file file dataset data data-path data-files dataset-name train-file ",
     "name the file by itself: gpt-prepare FILE"},
    {" model model-name model-name-or-path base-model tokenizer-type tokenizer-model tokenizer-name "
     "tokenizer-name-or-path vocab-file merge-file ",
     "write --tokenizer=OWNER/NAME, or the folder of the model"},
    {" chat-template template apply-chat-template ",
     "write --chat for the model's own template, or --chat=WORD"},
    {" train-on-inputs train-on-input train-on-prompt mask-prompt train-on-responses-only "
     "assistant-only-loss completion-only-loss ",
     "write --train-on=assistant, which is the default, completion or all"},
    {" field-messages messages-field messages-column text-column text-field text-key "
     "dataset-text-field json-keys column ",
     "write --field=NAME"},
    {" system-prompt system-message default-system ", "write --system=TEXT"},
    {" num-proc num-workers workers dataset-num-proc preprocessing-num-workers ",
     "write --threads=N"},
    {" append-eod append-eos add-eos eos add-eos-token ",
     "write --document-separator=after for an end-of-text token after each document"},
    {" packing sample-packing no-packing ", "leave it out: conversations are packed into rows"},
    {" shuffle shuffle-seed ", "leave it out: each epoch of gpt-train has another order of rows"},
    {" max-samples limit num-samples ", "cut the file first, as with head -n"},
    {" overwrite overwrite-cache force ", "write --restart to begin again"},
    {.names = NULL}};

static enum gt_status arguments_read(struct arguments *arguments, int argc, char **argv)
{
    static const char *const bad_lines[] = {"stop", "skip", NULL};
    struct prepare_spec *spec = &arguments->spec;
    const struct flag known[] = {
        {.name = "help", .to = &arguments->help},
        {.name = "version", .to = &arguments->version},
        {.name = "dedup", .to = &spec->dedup},
        {.name = "restart", .to = &spec->restart},
        {.name = "tokenizer",
         .kind = FLAG_TEXT,
         .to = &arguments->tokenizer,
         .room = arguments->tokenizer_room,
         .expected = "bytes, chars, gpt2, train, a path or OWNER/NAME"},
        {"vocab-size", FLAG_NUMBER, &spec->vocab_size, .min = BPE_TRAIN_VOCAB_MIN,
         .max = BPE_TRAIN_VOCAB_MAX},
        {"out-dir", FLAG_TEXT, &arguments->out_dir, .room = arguments->out_dir_room,
         .expected = "a folder"},
        {"format", FLAG_WORD, &spec->format, .words = documents_format_words},
        {"field", FLAG_TEXT, &spec->field, .expected = "the name of a field"},
        {"encoding", FLAG_TEXT, &spec->encoding, .expected = "the name of an encoding"},
        {"bad-lines", FLAG_WORD, &arguments->bad_lines, .words = bad_lines},
        {"documents", FLAG_WORD, &spec->end, .words = documents_end_words},
        {"document-separator", FLAG_WORD, &spec->separator, .words = prepare_separator_words},
        {.name = "val-fraction", .kind = FLAG_FRACTION, .to = &spec->val_fraction},
        {"val-split", FLAG_WORD, &spec->split, .words = prepare_split_words},
        {"seed", FLAG_NUMBER, &spec->seed, .max = INT64_MAX},
        {"chat", FLAG_MAY_WORD, &spec->chat, .words = chat_words, .max = CHAT_AUTO},
        {"system", FLAG_TEXT, &spec->system, .expected = "the text of a message"},
        {"train-on", FLAG_WORD, &spec->train_on, .words = chat_train_on_words},
        {"block-size", FLAG_NUMBER, &spec->block_size, .min = 8, .max = BLOCK_SIZE_MAX},
        {"shard-tokens", FLAG_NUMBER, &spec->shard_tokens, .min = 1, .max = INT32_MAX},
        {"threads", FLAG_NUMBER, &arguments->threads, .min = 1, .max = PREPARE_THREADS_MAX},
        {"save-every", FLAG_NUMBER, &arguments->save_every_mib, .min = 1, .max = INT64_C(1) << 40},
        {.name = NULL}};
    arguments->inputs = (const char **)argv;
    TRY(flags_read(PROGRAM, known, answers, argc, argv, &arguments->input_count));
    return arguments->help || arguments->version ? GT_OK : arguments_finish(arguments);
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
    const double elapsed_s = (double)(now_ns - line->started_ns) * 1e-9;
    const double rate = elapsed_s > 0 ? (double)(done_bytes - line->started_bytes) / elapsed_s : 0;
    const struct progress_view view = {
        .what = PROGRAM,
        .fraction = total_bytes > 0 ? (double)done_bytes / (double)total_bytes : -1.0,
        .count =
            total_bytes > 0 ? TEXT(32, "of %s", LOG_BYTES(total_bytes)) : LOG_BYTES(done_bytes),
        .note = rate > 0 ? TEXT(32, "%.1f MB/s", rate * 1e-6) : "",
        .seconds_left = rate > 0 && total_bytes > done_bytes
                            ? (double)(total_bytes - done_bytes) / rate
                            : -1.0};
    progress_draw(&line->progress, &view);
}

/* ---- the suggestion ----
 *
 * Size: a model needs about 20 tokens per parameter (Hoffmann et al. 2022, "Training
 * Compute-Optimal Large Language Models"), so the amount of text limits the size; a small text is
 * repeated for several epochs.  Time: 6 FLOPs per parameter and token, plus attention, at a rate
 * that processors reach with small models.  gpt-prepare does not look for cards; `gpt-train --plan`
 * does. */

#define TOKENS_PER_PARAMETER 20.0
#define EPOCHS_MAX 40.0
#define HOURS_MAX 8.0
/* Measured in a step of the tiny model on one processor with AVX2; see doc/own_text.md. */
#define PROCESSOR_FLOPS 30e9
#define ITERATIONS_MIN 100.0

struct model_size {
    const char *name;
    int n_layer, n_head, n_embd, block_size, batch_size, accumulation;
    const char *learning_rate, *min_lr;
};

static const struct model_size sizes[] = {
    {"tiny", 4, 4, 128, 128, 16, 1, "1e-3", "1e-4"},
    {"small", 6, 6, 192, 256, 16, 1, "1e-3", "1e-4"},
    {"medium", 6, 6, 384, 256, 32, 1, "1e-3", "1e-4"},
    {"large", 8, 8, 512, 512, 32, 1, "6e-4", "6e-5"},
    {"GPT-2 small", 12, 12, 768, 1024, 12, 40, "6e-4", "6e-5"},
};

/* The cost of training a model of one size. */
struct training {
    double parameters, tokens, iterations, seconds;
};

static struct training training_of(const struct model_size *size,
                                   const struct prepare_result *result, int processors)
{
    const double channels = size->n_embd, vocab = (double)result->vocab_size;
    const double matrices = 12 * channels * channels * size->n_layer + vocab * channels;
    const double flops =
        6 * matrices + 12 * channels * size->block_size * size->n_layer; /* per token */
    const double update = (double)size->batch_size * size->block_size * size->accumulation;
    const double repeated = EPOCHS_MAX * (double)result->train_tokens,
                 rate = PROCESSOR_FLOPS * processors;
    struct training training = {.parameters = matrices + channels * size->block_size};
    training.tokens = TOKENS_PER_PARAMETER * training.parameters;
    training.tokens = training.tokens < repeated ? training.tokens : repeated;
    if (size == sizes &&
        training.tokens * flops > HOURS_MAX * 3600 * rate) /* there is no smaller size */
        training.tokens = HOURS_MAX * 3600 * rate / flops;
    training.iterations = training.tokens / update;
    if (training.iterations < ITERATIONS_MIN)
        training.iterations = ITERATIONS_MIN;
    training.seconds = training.iterations * update * flops / rate;
    return training;
}

/* Returns the largest size that the text suffices for. */
static size_t size_for_text(const struct prepare_result *result)
{
    size_t i = sizeof sizes / sizeof sizes[0] - 1;
    while (i > 0 && TOKENS_PER_PARAMETER * training_of(&sizes[i], result, 1).parameters >
                        (double)result->train_tokens)
        i--;
    return i;
}

/* Rounds an estimate to two significant digits: 8,013 -> 8,000. */
static int64_t rounded(double value)
{
    int64_t unit = 1;
    while (value / (double)unit >= 100)
        unit *= 10;
    return (int64_t)(value / (double)unit + 0.5) * unit;
}

#define FOLDERS_TEXT_MAX (3 * FILE_PATH_MAX)

/* Writes "--dataset=... --out_dir=..." for gpt-train.  Returns `text`, which is empty if the path
 * cannot be written. */
static char *folders_text(char text[static FOLDERS_TEXT_MAX], const char *out_dir)
{
    char path[FILE_PATH_MAX], quoted[2][FILE_PATH_MAX];
    text[0] = '\0';
    if (file_trim(path, out_dir) != GT_OK)
        return text;
    const char *name = file_name_of(path);
    const bool in_data = name == path + 5 && strncmp(path, "data/", 5) == 0;
    /* gpt-train would look for a name without a slash below data/. */
    const char *dataset =
        TEXT(FILE_PATH_MAX + 2, "%s%s", name == path ? "./" : "", in_data ? name : path);
    snprintf(
        text, FOLDERS_TEXT_MAX, "--dataset=%s --out_dir=%s",
        file_shell_quote(quoted[0], sizeof quoted[0], dataset),
        file_shell_quote(quoted[1], sizeof quoted[1], TEXT(FILE_PATH_MAX + 8, "out-%s", name)));
    return text;
}

/* Suggests tuning the model whose tokenizer made the ids.  Returns false if the tokenizer belongs
 * to no model. */
static bool suggest_tuning(const struct arguments *arguments)
{
    char folders[FOLDERS_TEXT_MAX], quoted[FILE_PATH_MAX];
    const char *model = arguments->tokenizer;
    const bool folder = file_is_folder(model) && file_exists(FILE_IN(model, "config.json"));
    if ((!folder && !hf_hub_is_repository(model)) ||
        folders_text(folders, arguments->out_dir)[0] == '\0')
        return false;
    const char *from =
        TEXT(FILE_PATH_MAX, "%s%s", folder && strchr(model, '/') == NULL ? "./" : "", model);
    log_result("to tune that model, with adapters:");
    log_result("  gpt-train --init_from=%s --lora_rank=16 \\",
               file_shell_quote(quoted, sizeof quoted, from));
    log_result("    %s", folders);
    return true;
}

static void command_print(const char *out_dir, const struct model_size *size, int64_t block_size,
                          int64_t iterations, bool is_chat)
{
    char folders[FOLDERS_TEXT_MAX];
    if (folders_text(folders, out_dir)[0] == '\0')
        return;
    log_result("  gpt-train %s \\", folders);
    log_result("    --n_layer=%d --n_head=%d --n_embd=%d --block_size=%" PRId64
               " --batch_size=%d \\",
               size->n_layer, size->n_head, size->n_embd, block_size, size->batch_size);
    log_result("    --gradient_accumulation_steps=%d --max_iters=%" PRId64
               " --lr_decay_iters=%" PRId64 " \\",
               size->accumulation, iterations, iterations);
    log_result("    --learning_rate=%s --min_lr=%s --warmup_iters=%" PRId64 " \\",
               size->learning_rate, size->min_lr, iterations / 20);
    log_result("    --eval_interval=%" PRId64 " --eval_iters=20%s", iterations / 10,
               is_chat ? " --document_mask=True" : "");
}

/* Suggests a size that suits the amount of text and this machine, with an estimate of the time and
 * a command. */
static void suggest(const char *out_dir, const struct prepare_result *result)
{
    const int processors = thread_count_available();
    const size_t most = size_for_text(result);
    size_t chosen = most;
    struct training training = training_of(&sizes[chosen], result, processors);
    while (chosen > 0 && training.seconds > HOURS_MAX * 3600)
        training = training_of(&sizes[--chosen], result, processors);
    const struct model_size *size = &sizes[chosen];
    int64_t block_size = size->block_size;
    const int64_t val = result->val_tokens > 0 ? result->val_tokens : result->train_tokens;
    const int64_t shorter = val < result->train_tokens ? val : result->train_tokens;
    block_size = block_size < shorter ? block_size : shorter - 1;
    block_size = result->row_tokens > 0 ? result->row_tokens : block_size;
    if (block_size < 1) {
        log_result("this is too little text to train on");
        return;
    }
    log_result("a model for this text and %d processor%s: %s, %.1f million parameters, about %s",
               processors, processors == 1 ? "" : "s", size->name, training.parameters * 1e-6,
               CLOCK_DURATION((double)rounded(training.seconds)));
    command_print(out_dir, size, block_size, rounded(training.iterations), result->row_tokens > 0);
    log_result("(the time is an estimate; add --plan to the command to see memory and time)");
    if (chosen < most)
        log_result(
            "on a graphics card, this text is enough for %.0f million parameters: --n_layer=%d --n_head=%d "
            "--n_embd=%d --block_size=%d",
            training_of(&sizes[most], result, processors).parameters * 1e-6, sizes[most].n_layer,
            sizes[most].n_head, sizes[most].n_embd, sizes[most].block_size);
}

/* ---- the report ---- */

/* 1003854 -> "1,003,854" */
#define COUNT_TEXT(count) count_text((char[32]){0}, count)
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
#define COUNTED(count, noun) \
    TEXT(64, "%s %s%s", COUNT_TEXT((int64_t)(count)), noun, (count) == 1 ? "" : "s")

static void report_counts(const struct prepare_spec *spec, const struct prepare_result *result)
{
    char kinds[PREPARE_KINDS_TEXT_BYTES];
    const struct documents_state *documents = &result->documents;
    const struct prepare_counts *counts = &result->counts;
    if (result->many_documents)
        log_result("%s, %s left out",
                   COUNTED(documents->document_count - counts->duplicates - counts->targetless,
                           "document"),
                   COUNTED(documents->empty_count, "empty one"));
    if (counts->duplicates > 0)
        log_result("%s left out", COUNTED(counts->duplicates, "exact duplicate"));
    if (documents->bad_line_count > 0)
        log_warning("%s left out", COUNTED(documents->bad_line_count, "bad line"));
    if (documents->skipped_count > 0)
        log_note("%s left out, not text: %s (give one as INPUT to see why)",
                 COUNTED(documents->skipped_count, "file"),
                 prepare_kinds_text(kinds, documents->kinds));
    const bool has_lines = documents->line_end_count > 0, has_marks = documents->mark_count > 0;
    if (documents->converted_count > 0)
        log_note("%s%s: %s%s%s", documents->converted,
                 documents->converted_count > 1
                     ? TEXT(64, " and %s", COUNTED(documents->converted_count - 1, "other text"))
                     : "",
                 has_lines ? TEXT(96, "%s (\\r\\n or \\r) read as \\n",
                                  COUNTED(documents->line_end_count, "line end"))
                           : "",
                 has_lines && has_marks ? ", " : "",
                 has_marks
                     ? TEXT(96, "%s left out", COUNTED(documents->mark_count, "byte-order mark"))
                     : "");
    if (counts->cut_conversations > 0)
        log_warning("%s longer than %" PRId64
                    " tokens cut at the end; a larger --block-size keeps more",
                    COUNTED(counts->cut_conversations, "conversation"), spec->block_size);
    if (counts->targetless > 0)
        log_warning("%s left out: no answer that counts begins within --block-size=%" PRId64
                    " tokens%s",
                    COUNTED(counts->targetless, "conversation"), spec->block_size,
                    counts->targetless_needs > 0
                        ? TEXT(64, "; --block-size=%" PRId64 " would keep the first",
                               (counts->targetless_needs + 7) / 8 * 8)
                        : "");
    if (counts->invalid_bytes > 0)
        log_warning("not UTF-8: %s in %s, kept as they are; --encoding=NAME converts text",
                    COUNTED(counts->invalid_bytes, "byte"),
                    COUNTED(counts->invalid_documents, "document"));
    if (counts->zero_documents > 0)
        log_warning("zero bytes in %s, kept; text in UTF-16 needs --encoding=UTF-16LE or UTF-16BE",
                    COUNTED(counts->zero_documents, "document"));
    if (spec->tokenizer == TOKENIZER_BPE &&
        counts->forced_cuts > 0) /* a token could span the cut */
        log_note("256 KiB of text without a space were cut before tokenizing, in %s",
                 COUNTED(counts->forced_cuts, "place"));
    if (spec->dedup && documents->long_count > 0)
        log_note("%s longer than %zu MiB not compared with others",
                 COUNTED(documents->long_count, "document"), DOCUMENT_BYTES_MAX >> 20);
}

/* Documents are assigned whole, so that a few long ones may divide very unevenly. */
static void report_share(const struct prepare_spec *spec, const struct prepare_result *result)
{
    const double all = (double)(result->train_tokens + result->val_tokens),
                 share = (double)result->val_tokens / all;
    if (result->by_position || spec->chat != CHAT_NONE || spec->val_fraction == 0.0 ||
        (share <= 2.0 * spec->val_fraction && share >= 0.5 * spec->val_fraction))
        return;
    log_note("validation has %.3g %% of the tokens, where --val-fraction=%g asks for %.3g %%, as "
             "it has whole documents; --val-split=position cuts one to get that share",
             100.0 * share, spec->val_fraction, 100.0 * spec->val_fraction);
}

static void report_result(const struct arguments *arguments, const struct prepare_result *result)
{
    report_counts(&arguments->spec, result);
    log_result("%s, tokenizer %s, vocab size: %s", COUNTED(result->documents.file_count, "file"),
               tokenizer_kind_names[arguments->spec.tokenizer], COUNT_TEXT(result->vocab_size));
    log_result("train has %s", COUNTED(result->train_tokens, "token"));
    log_result("val has %s", COUNTED(result->val_tokens, "token"));
    report_share(&arguments->spec, result);
    if (arguments->spec.chat != CHAT_NONE)
        log_result("%s %s", COUNTED(result->counts.answer_tokens, "token"),
                   arguments->spec.train_on == CHAT_TRAIN_ASSISTANT ? "of the assistant count"
                                                                    : "count");
    log_result("written to %s", arguments->out_dir);
    if (!suggest_tuning(arguments))
        suggest(arguments->out_dir, result);
}

/* ---- the work ---- */

/* Loads an existing vocabulary; the other kinds are made from the text. */
static enum gt_status tokenizer_open(struct hostmem *mem, struct arguments *arguments,
                                     struct tokenizer **out)
{
    const char *name = arguments->tokenizer;
    arguments->spec.tokenizer = TOKENIZER_BPE;
    if (strcmp(name, "bytes") == 0 || strcmp(name, "chars") == 0)
        arguments->spec.tokenizer = strcmp(name, "bytes") == 0 ? TOKENIZER_BYTES : TOKENIZER_CHARS;
    if (arguments->spec.tokenizer != TOKENIZER_BPE || strcmp(name, "train") == 0)
        return GT_OK;
    if (strcmp(name, "gpt2") != 0 && !file_exists(name) && !hf_hub_is_repository(name))
        return FAIL(
            GT_USAGE,
            "--tokenizer=%s: no such file or folder; it is bytes, chars, train, gpt2, a folder, a "
            "tokenizer.json, a GGUF file or OWNER/NAME",
            name);
    TRY(gguf_is_file(name) ? gguf_tokenizer_open(mem, name, out) : tokenizer_find(mem, name, out));
    if (*out == NULL)
        return FAIL(GT_UNSUPPORTED, "--tokenizer=%s: this file has no supported tokenizer", name);
    if ((*out)->kind == TOKENIZER_BPE)
        return GT_OK;
    return FAIL(
        GT_USAGE,
        "--tokenizer=%s: this vocabulary is of kind %s, which is made from the inputs; give --tokenizer=%s%s",
        name, tokenizer_kind_names[(*out)->kind], tokenizer_kind_names[(*out)->kind],
        (*out)->kind == TOKENIZER_CHARS
            ? " and all texts that are to have the same characters in one command, or use "
              "--tokenizer=bytes for all"
            : "");
}

/* Finds the template for --chat, and notes which one it is. */
static enum gt_status template_choose(struct arguments *arguments, struct tokenizer *given)
{
    struct prepare_spec *spec = &arguments->spec;
    bool exact = true;
    if (spec->chat == CHAT_NONE)
        return GT_OK;
    if (spec->tokenizer == TOKENIZER_BPE && given == NULL) {
        spec->chat = spec->chat == CHAT_AUTO ? CHAT_CHATML : spec->chat;
        return GT_OK;
    }
    TRY(chat_choose(given, spec->chat, &spec->chat));
    chat_use(given, spec->chat);
    if (given->template != NULL)
        (void)chat_recognise(given->template, &exact);
    log_note("chat template: %s%s", chat_words[spec->chat],
             given->template == NULL ? ""
             : exact                 ? ", the model's own"
                                     : ", recognised by parts of the model's own");
    return GT_OK;
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
    THEN(status, template_choose(arguments, given));
    if (status == GT_OK) {
        spec->given = given;
        spec->inputs = arguments->inputs;
        spec->input_count = (size_t)arguments->input_count;
        spec->out_dir = arguments->out_dir;
        progress_init(&line.progress);
        spec->progress = line.progress.terminal ? progress_show_bytes : NULL;
        spec->progress_context = &line;
        status = prepare_run(mem, spec, &result);
        progress_clear(&line.progress);
    }
    if (status == GT_OK)
        report_result(arguments, &result);
    hostmem_destroy(mem);
    return status;
}
