/* Chooses a writer, after the checks that all formats share.
 *
 * Errors that do not depend on the weights, such as a wrong dtype or an existing output, are
 * detected before the weights are read.  export_weights_verify() then verifies the whole
 * checkpoint, so that a damaged file is never passed on under a new name, and only then does the
 * writer begin. llm.c's file is written here too; its tokenizer is in another file, which is not.
 */
#include "io/export.h"

#include <math.h>

#include "base/size.h"
#include "base/thread.h"
#include "data/chat.h"
#include "io/checkpoint_folder.h"
#include "io/export_gguf.h"
#include "io/export_hf.h"
#include "io/export_ollama.h"
#include "io/export_options.h"
#include "io/export_weights.h"
#include "io/llmc_model.h"
#include "model/parameters.h"

static const struct {
    enum gt_status (*write)(const struct export_options *options,
                            const struct export_weights *weights);
    unsigned dtypes; /* bits */
    bool folder;
    bool blocks; /* can store ggml's blocks, and does not need 32 bits */
} formats[] = {
    [EXPORT_HF] = {export_hf_write, 1u << DTYPE_F32 | 1u << DTYPE_BF16 | 1u << DTYPE_F16, true,
                   false},
    [EXPORT_GGUF] = {export_gguf_write, 1u << DTYPE_F32 | 1u << DTYPE_BF16 | 1u << DTYPE_F16, false,
                     true},
    [EXPORT_LLMC] = {export_llmc_write, 1u << DTYPE_F32 | 1u << DTYPE_BF16, false, false},
    [EXPORT_PEFT] = {export_hf_write, 1u << DTYPE_F32 | 1u << DTYPE_BF16 | 1u << DTYPE_F16, true,
                     false},
    [EXPORT_OLLAMA] = {export_ollama_write, 1u << DTYPE_F32 | 1u << DTYPE_BF16 | 1u << DTYPE_F16,
                       true, true},
    [EXPORT_GGUF_LORA] = {export_gguf_write, 1u << DTYPE_F32 | 1u << DTYPE_BF16 | 1u << DTYPE_F16,
                          false, false},
};
_Static_assert(sizeof formats / sizeof formats[0] == EXPORT_FORMATS, "a writer for every format");

const char *const export_format_words[] = {"hf",     "gguf",      "llmc", "peft",
                                           "ollama", "gguf-lora", NULL};

/* Fails when `folder` is the folder of a run, which an export would damage. */
static enum gt_status run_refuse(const char *output, const char *folder, const char *what)
{
    bool exists;
    TRY(file_stat_exists(FILE_IN(folder, CHECKPOINT_RECORD_NAME), &exists));
    if (!exists)
        return GT_OK;
    return FAIL(GT_USAGE, "%s: is %s of a run, which an export would damage; choose another OUTPUT",
                output, what);
}

static enum gt_status output_check(const struct export_options *options)
{
    const char *output = options->output;
    const bool folder = formats[options->format].folder;
    char parent[FILE_PATH_MAX];
    bool exists;
    TRY(file_stat_exists(output, &exists));
    if (!folder && checkpoint_keep_belongs(file_name_of(output))) {
        file_folder_of(parent, output);
        TRY(run_refuse(output, parent, "a file"));
    }
    if (!exists)
        return GT_OK;
    if (file_is_folder(output) != folder)
        return FAIL(GT_USAGE, "%s: is %s, but --format=%s writes %s", output,
                    folder ? "a file" : "a folder", export_format_words[options->format],
                    folder ? "a folder" : "a file");
    if (folder)
        TRY(run_refuse(output, output, "the folder"));
    if (options->force)
        return GT_OK;
    return FAIL(GT_USAGE, "%s: already exists; --force replaces it", output);
}

static bool exports_adapters(enum export_format format)
{
    return format == EXPORT_PEFT || format == EXPORT_GGUF_LORA;
}

/* Refuses a model that the format cannot hold. */
static enum gt_status model_check(const struct export_options *options)
{
    const struct model_config *config = &options->checkpoint->config;
    const bool gguf = formats[options->format].blocks;
    if (exports_adapters(options->format) && config->lora.rank == 0)
        return FAIL(GT_USAGE,
                    "%s: --format=%s exports adapters, and this model has none; use --format=%s",
                    options->checkpoint->source, export_format_words[options->format],
                    options->format == EXPORT_PEFT ? "hf" : "gguf");
    char text[HF_LACKS_MAX];
    const char *lacks = gguf ? export_gguf_lacks(config, text) : hf_config_lacks(config, text);
    if (options->format == EXPORT_LLMC && !model_is_gpt2(config))
        return FAIL(GT_UNSUPPORTED, "%s: --format=llmc holds GPT-2's blocks only%s",
                    options->checkpoint->source,
                    lacks == NULL ? "; --format=hf holds this model" : "");
    if (lacks == NULL)
        return GT_OK;
    return FAIL(GT_UNSUPPORTED, "%s: no %s holds a model with %s", options->checkpoint->source,
                gguf ? "architecture of llama.cpp" : "class of transformers", lacks);
}

enum dtype export_dtype_default(enum export_format format, const struct checkpoint *checkpoint)
{
    const char *trained =
        json_string_value(json_object_get(checkpoint->record.state.plan, "dtype"));
    const bool half = trained != NULL ? strcmp(trained, dtype_name(DTYPE_F16)) == 0
                                      : checkpoint->model->count > 0 &&
                                            checkpoint->model->tensors[0].dtype == DTYPE_F16;
    if (!formats[format].blocks)
        return DTYPE_F32;
    return half ? DTYPE_F16 : DTYPE_BF16;
}

enum gt_status export_run(const struct export_options *options)
{
    struct export_weights weights;
    struct checkpoint written = *options->checkpoint;
    struct export_options output = *options;
    written.config.embed_norm = false; /* export_weights_read() folds it into the table, */
    written.config.lora.alone = exports_adapters(options->format);
    if (!written.config.lora.alone)
        written.config.lora.rank = 0; /* and the adapters into what they adapt */
    output.checkpoint = &written;
    if ((formats[options->format].dtypes >> options->dtype & 1u) == 0)
        return FAIL(GT_USAGE, "--format=%s cannot store %s; choose another --dtype",
                    export_format_words[options->format], dtype_name(options->dtype));
    if (options->mixture != GGUF_NO_MIXTURE && !formats[options->format].blocks)
        return FAIL(GT_USAGE, "--format=%s cannot store %s; --format=gguf can",
                    export_format_words[options->format], gguf_mixture_word(options->mixture));
    TRY(model_check(&output));
    TRY(output_check(options));
    TRY(export_weights_open(options->mem, options->checkpoint, &weights));
    enum gt_status status = export_weights_verify(&weights);
    THEN(status, formats[options->format].write(&output, &weights));
    hostmem_free(weights.values);
    return status;
}

/* ---- llm.c's file ---- */

#define LLMC_HEADER_WORDS (LLMC_MODEL_HEADER_BYTES / sizeof(int32_t))
#define LLMC_VOCAB_MULTIPLE 128

enum gt_status export_llmc_write(const struct export_options *options,
                                 const struct export_weights *weights)
{
    const struct model_config *config = &options->checkpoint->config;
    struct file_replacement file;
    const size_t padded = size_round_up((size_t)config->vocab_size, LLMC_VOCAB_MULTIPLE);
    const size_t padding_bytes = (padded - (size_t)config->vocab_size) * (size_t)config->n_embd *
                                 dtype_size_bytes(options->dtype);
    if (config->gelu != GELU_TANH)
        log_warning(
            "the model was trained with gelu=erf, but llm.c computes tanh; logits will differ slightly");
    if (config->norm_epsilon != 1e-5)
        log_warning(
            "the model's layer_norm_epsilon is %g, but llm.c's is 1e-05; logits will differ slightly",
            config->norm_epsilon);
    const int32_t header[LLMC_HEADER_WORDS] = {
        LLMC_MODEL_MAGIC,   options->dtype == DTYPE_F32 ? LLMC_MODEL_F32 : LLMC_MODEL_BF16,
        config->block_size, config->vocab_size,
        config->n_layer,    config->n_head,
        config->n_embd,     (int32_t)padded};
    TRY(file_replacement_begin(&file, options->output, NULL));
    enum gt_status status = file_replacement_write(&file, header, sizeof header);
    for (size_t position = 0; status == GT_OK && position < parameters_count(config); position++) {
        struct parameter_shape shape;
        parameters_shape(config, llmc_model_index(config, position), &shape);
        status = export_weights_write(weights, &shape, &(struct tensor_form){.map = NULL},
                                      ggml_type_of(options->dtype), &file);
        if (position == 0)
            THEN(status, export_zeros_write(&file, padding_bytes));
    }
    return file_replacement_end(&file, status);
}
