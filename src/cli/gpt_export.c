/* gpt-export: writes a trained model for transformers, llama.cpp, Ollama or llm.c.
 *
 * This file reads the command line, opens the checkpoint and its tokenizer, and chooses the exit
 * status; io/export.c does the work.  Flags are --name=value or --name value; '-' equals '_'.  They
 * may follow OUTPUT; "--" ends them.
 */
#include "base/clock.h"
#include "base/file.h"
#include "base/hostmem.h"
#include "cli/program.h"
#include "cli/restart.h"
#include "data/tokenizer.h"
#include "data/tokenizer_import.h"
#include "io/checkpoint.h"
#include "io/checkpoint_folder.h"
#include "io/checkpoint_open.h"
#include "io/export.h"
#include "io/export_ollama.h"
#include "io/export_options.h"
#include "io/gguf_model.h"
#include "io/gguf_tokenizer.h"
#include "judge/export_check.h"

#define PROGRAM "gpt-export"
#define EVALUATE_DEFAULT 2048 /* tokens */

struct arguments {
    bool help, version, force;
    const char *out_dir, *checkpoint, *output;
    int format; /* -1: not given */
    int type;   /* a dtype, or DTYPE_F16 plus a mixture; -1: not given */
    int64_t evaluate;
    char out_dir_room[FILE_PATH_MAX];
};

static void print_help(void)
{
    fputs("Usage: gpt-export [--out_dir=DIR] --format=FORMAT [OPTION]... OUTPUT\n"
          "\n"
          "Writes a model that gpt-train saved in DIR to OUTPUT, for other programs.\n"
          "OUTPUT appears only when it is complete.\n"
          "\n"
          "Example\n"
          "  gpt-export --out_dir=out --format=gguf --dtype=q8_0 model.gguf\n"
          "\n"
          "  --out_dir=DIR     folder of the run, or of any model or adapter that\n"
          "                    init_from takes (default out)\n"
          "  --checkpoint=N    the checkpoint of iteration N, or best, of those that\n"
          "                    gpt-train --keep left (default the last)\n"
          "  --format=FORMAT   hf: a folder for Hugging Face's transformers, with tokenizer\n"
          "                    gguf: a file for llama.cpp, with tokenizer\n"
          "                    ollama: a folder with that file and a Modelfile for Ollama\n"
          "                    llmc: a checkpoint of llm.c\n"
          "                    peft: a folder with the adapters alone, for PEFT\n"
          "                    gguf-lora: a file with the adapters alone, for llama.cpp;\n"
          "                    the other formats get the model with its adapters added\n"
          "  --dtype=DTYPE     type of the weights: float32, bfloat16, float16 (not with\n"
          "                    llmc); gguf and ollama also q8_0, q6_k, q5_k_m, q5_0,\n"
          "                    q4_k_m, q4_0 (default float32; for these two bfloat16, or\n"
          "                    float16 for a model that was trained in it)\n"
          "  --evaluate=N      open OUTPUT again and compare its weights with the\n"
          "                    model's, and its loss on N tokens at most (default\n"
          "                    2048); 0: do not\n"
          "  --force           replace OUTPUT if it exists\n"
          "  -h, --help, --version\n"
          "\n"
          "Exit status: 0 done, 1 a failure while running, 2 a bad flag or checkpoint.\n",
          stdout);
}

/* ---- the command line ---- */

/* Flags of llama.cpp's converters, PEFT's examples and unsloth. */
static const struct flag_answer answers[] = {
    {" outtype quantize quantization quantization-method quant export-quantization-bit ",
     "write --format=gguf --dtype=q8_0, or another type of --help"},
    {" outfile output output-dir output-path save-path export-dir ",
     "name OUTPUT by itself: gpt-export --format=gguf FILE.gguf"},
    {" model model-name model-name-or-path base-model adapter lora init-from checkpoint-dir ",
     "write --out_dir=DIR for the folder of a run, a model or an adapter"},
    {" merge merge-adapter merged ",
     "leave it out: hf, gguf and ollama get the model with its adapters added"},
    {" push-to-hub hub-model-id repo-id token ",
     "nothing is sent: write --format=hf DIR, then hf upload OWNER/NAME DIR"},
    {.names = NULL}};

static enum gt_status arguments_read(struct arguments *arguments, int argc, char **argv)
{
    const char *types[DTYPE_F16 + GGUF_MIXTURES + 1] = {
        dtype_name(DTYPE_F32), dtype_name(DTYPE_BF16), dtype_name(DTYPE_F16)};
    for (int i = 1; i < GGUF_MIXTURES; i++)
        types[DTYPE_F16 + i] = gguf_mixture_word((enum gguf_mixture)i);
    const struct flag known[] = {
        {.name = "help", .to = &arguments->help},
        {.name = "version", .to = &arguments->version},
        {.name = "force", .to = &arguments->force},
        {"out-dir", FLAG_TEXT, &arguments->out_dir, .room = arguments->out_dir_room,
         .expected = "a folder"},
        {.name = "checkpoint", .kind = FLAG_TEXT, .to = &arguments->checkpoint},
        {"format", FLAG_WORD, &arguments->format, .words = export_format_words},
        {"dtype", FLAG_WORD, &arguments->type, .words = types},
        {"evaluate", FLAG_NUMBER, &arguments->evaluate, .min = 0, .max = 1000000},
        {.name = NULL}};
    int count = 0;
    TRY(flags_read(PROGRAM, known, answers, argc, argv, &count));
    arguments->output = argv[0];
    if (arguments->help || arguments->version)
        return GT_OK;
    if (count > 1)
        return flags_error(PROGRAM, "only one OUTPUT can be given; --out_dir=DIR names the model",
                           argv[1]);
    if (arguments->format < 0)
        return FAIL(GT_USAGE,
                    "choose a format: --format=hf, gguf, llmc, peft, ollama or gguf-lora");
    if (count == 0 || argv[0][0] == '\0' || strcmp(argv[0], "-") == 0)
        return FAIL(GT_USAGE, "name the OUTPUT file or folder to write");
    return GT_OK;
}

/* ---- the work ---- */

/* Opens the tokenizer in the model's folder, or sets NULL if there is none.  It must be the one
 * used in training. */
static enum gt_status tokenizer_open(struct hostmem *mem, const char *folder,
                                     const struct checkpoint *checkpoint, struct tokenizer **out)
{
    bool exists;
    if (checkpoint->kind == CHECKPOINT_GGUF)
        TRY(gguf_tokenizer_open(mem, folder, out));
    else
        TRY(tokenizer_import_folder(folder, &exists));
    if (checkpoint->kind != CHECKPOINT_GGUF && exists)
        TRY(tokenizer_import(mem, folder, out));
    if (*out == NULL)
        return GT_OK;
    TRY(checkpoint_tokenizer_check(checkpoint, *out, folder));
    const int32_t vocab_size = checkpoint->config.vocab_size;
    if ((*out)->vocab_size <= vocab_size)
        return GT_OK;
    return FAIL(GT_DATA, "%s: the tokenizer has %" PRId64 " tokens, but the model only %" PRId32,
                folder, (*out)->vocab_size, vocab_size);
}

/* Logs the commands that create the model in Ollama and start a conversation. */
static void ollama_log(const char *output)
{
    char path[2 * FILE_PATH_MAX], room[EXPORT_OLLAMA_NAME_MAX];
    const char *name = export_ollama_name(room, output);
    log_result("  ollama create %s -f %s", name,
               file_shell_quote(path, sizeof path, FILE_IN(output, EXPORT_MODELFILE)));
    log_result("  ollama run %s", name);
}

static enum gt_status export_opened(struct hostmem *mem, const struct arguments *arguments)
{
    char name[FILE_PATH_MAX], model[FILE_PATH_MAX];
    struct checkpoint *checkpoint;
    struct tokenizer *tokenizer = NULL;
    const int64_t start_ns = clock_monotonic_ns();
    TRY(program_model_check(arguments->out_dir));
    (void)snprintf(name, sizeof name, "%s", arguments->out_dir);
    if (arguments->checkpoint[0] != '\0')
        TRY(checkpoint_keep_find(arguments->out_dir, arguments->checkpoint, name));
    TRY(checkpoint_open(mem, name, false, &checkpoint));
    memcpy(model, name, sizeof model);
    TRY(tokenizer_open(mem, arguments->out_dir, checkpoint, &tokenizer));
    TRY(file_trim(name, arguments->out_dir));
    const bool blocks = arguments->type > DTYPE_F16;
    const enum gguf_mixture mixture =
        blocks ? (enum gguf_mixture)(arguments->type - DTYPE_F16) : GGUF_NO_MIXTURE;
    const enum dtype usual =
        export_dtype_default((enum export_format)arguments->format, checkpoint);
    const enum dtype dtype = blocks || arguments->type < 0 ? usual : (enum dtype)arguments->type;
    const struct export_options options = {
        .mem = mem,
        .format = (enum export_format)arguments->format,
        .checkpoint = checkpoint,
        .tokenizer = tokenizer,
        .output = arguments->output,
        .name = file_name_of(name), /* some formats store it as the model's */
        .run = arguments->out_dir,
        .dtype = dtype,
        .mixture = mixture,
        .force = arguments->force};
    TRY(export_run(&options));
    const struct export_check check = {
        .options = &options, .model = model, .tokens = arguments->evaluate};
    TRY(export_check_run(&check));
    log_result("%s: %s, %s, written in %.1f s", arguments->output,
               export_format_words[arguments->format],
               blocks ? gguf_mixture_word(mixture) : dtype_name(dtype),
               (double)(clock_monotonic_ns() - start_ns) * 1e-9);
    if (options.format == EXPORT_OLLAMA)
        ollama_log(arguments->output);
    return GT_OK;
}

static enum gt_status export_model(const struct arguments *arguments)
{
    struct hostmem *mem = NULL;
    TRY(hostmem_create(&mem));
    const enum gt_status status = export_opened(mem, arguments);
    hostmem_destroy(mem);
    return status;
}

int main(int argc, char **argv)
{
    struct arguments arguments = {
        .out_dir = "out", .checkpoint = "", .format = -1, .type = -1, .evaluate = EVALUATE_DEFAULT};
    program_spin_limit(argv);
    program_begin(PROGRAM);
    enum gt_status status = arguments_read(&arguments, argc, argv);
    if (status == GT_OK && !program_answers(PROGRAM, arguments.help, arguments.version, print_help))
        status = export_model(&arguments);
    return program_exit_status(status);
}
