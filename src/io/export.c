/* Chooses a writer, after the checks that all formats share, and reads the checkpoint's weights for it, in the order,
 * layout and dtype of another format.
 *
 * Errors that do not depend on the weights, such as a wrong dtype or an existing output, are detected before the
 * weights are read.  The whole checkpoint is then verified by loading it and discarding the values, so that a damaged
 * file is never passed on under a new name, and only then does the writer begin.  A matrix is transposed as it is read
 * (safetensors.h).  Nothing of a tensor is kept after it has been written.  llm.c's file is written here too; its
 * tokenizer is in another file, which is not.
 */
#include "io/export.h"

#include <math.h>

#include "base/size.h"
#include "base/thread.h"
#include "data/chat.h"
#include "io/llmc_model.h"

static const struct {
    enum gt_status (*write)(const struct export_options *options, const struct export_weights *weights);
    unsigned dtypes; /* bits */
    bool folder;
    bool blocks; /* can store ggml's blocks, and does not need 32 bits */
} formats[] = {
    [EXPORT_HF] = {export_hf_write, 1u << DTYPE_F32 | 1u << DTYPE_BF16 | 1u << DTYPE_F16, true, false},
    [EXPORT_GGUF] = {export_gguf_write, 1u << DTYPE_F32 | 1u << DTYPE_BF16 | 1u << DTYPE_F16, false, true},
    [EXPORT_LLMC] = {export_llmc_write, 1u << DTYPE_F32 | 1u << DTYPE_BF16, false, false},
    [EXPORT_PEFT] = {export_hf_write, 1u << DTYPE_F32 | 1u << DTYPE_BF16 | 1u << DTYPE_F16, true, false},
    [EXPORT_OLLAMA] = {export_ollama_write, 1u << DTYPE_F32 | 1u << DTYPE_BF16 | 1u << DTYPE_F16, true, true},
    [EXPORT_GGUF_LORA] = {export_gguf_write, 1u << DTYPE_F32 | 1u << DTYPE_BF16 | 1u << DTYPE_F16, false, false},
};
_Static_assert(sizeof formats / sizeof formats[0] == EXPORT_FORMATS, "a writer for every format");

const char *const export_format_words[] = {"hf", "gguf", "llmc", "peft", "ollama", "gguf-lora", NULL};

/* Fails when `folder` is the folder of a run, which an export would damage. */
static enum gt_status run_refuse(const char *output, const char *folder, const char *what)
{
    bool exists;
    TRY(file_look(FILE_IN(folder, CHECKPOINT_RECORD_NAME), &exists));
    if (!exists)
        return GT_OK;
    return FAIL(GT_USAGE, "%s: is %s of a run, which an export would damage; choose another OUTPUT", output, what);
}

static enum gt_status output_check(const struct export_options *options)
{
    const char *output = options->output;
    const bool folder = formats[options->format].folder;
    char parent[FILE_PATH_MAX];
    bool exists;
    TRY(file_look(output, &exists));
    if (!folder && checkpoint_keep_belongs(file_name_of(output))) {
        file_folder_of(parent, output);
        TRY(run_refuse(output, parent, "a file"));
    }
    if (!exists)
        return GT_OK;
    if (file_is_folder(output) != folder)
        return FAIL(GT_USAGE, "%s: is %s, but --format=%s writes %s", output, folder ? "a file" : "a folder",
                    export_format_words[options->format], folder ? "a folder" : "a file");
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
        return FAIL(GT_USAGE, "%s: --format=%s exports adapters, and this model has none; use --format=%s",
                    options->checkpoint->source, export_format_words[options->format],
                    options->format == EXPORT_PEFT ? "hf" : "gguf");
    char text[HF_LACKS_MAX];
    const char *lacks = gguf ? export_gguf_lacks(config, text) : hf_config_lacks(config, text);
    if (options->format == EXPORT_LLMC && !model_is_gpt2(config))
        return FAIL(GT_UNSUPPORTED, "%s: --format=llmc holds GPT-2's blocks only%s", options->checkpoint->source,
                    lacks == NULL ? "; --format=hf holds this model" : "");
    if (lacks == NULL)
        return GT_OK;
    return FAIL(GT_UNSUPPORTED, "%s: no %s holds a model with %s", options->checkpoint->source,
                gguf ? "architecture of llama.cpp" : "class of transformers", lacks);
}

enum dtype export_dtype_default(enum export_format format, const struct checkpoint *checkpoint)
{
    const char *trained = json_string_value(json_object_get(checkpoint->record.state.plan, "dtype"));
    const bool half = trained != NULL
                          ? strcmp(trained, dtype_name(DTYPE_F16)) == 0
                          : checkpoint->model->count > 0 && checkpoint->model->tensors[0].dtype == DTYPE_F16;
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
        return FAIL(GT_USAGE, "--format=%s cannot store %s; --format=gguf can", export_format_words[options->format],
                    gguf_mixture_word(options->mixture));
    TRY(model_check(&output));
    TRY(output_check(options));
    TRY(export_weights_open(options->mem, options->checkpoint, &weights));
    const enum gt_status status = formats[options->format].write(&output, &weights);
    hostmem_free(weights.values);
    return status;
}

/* ---- the weights ---- */

enum gt_status export_weights_open(const void *owner, const struct checkpoint *checkpoint, struct export_weights *out)
{
    const size_t row = (size_t)checkpoint->config.n_embd;
    struct export_weights weights = {.checkpoint = checkpoint,
                                     .threads = thread_count_available(),
                                     .capacity = row < EXPORT_VALUES ? EXPORT_VALUES / row * row : EXPORT_VALUES};
    TRY(HOSTMEM_NEW(owner, EXPORT_VALUES, "weights to export", &weights.values));
    enum gt_status status = HOSTMEM_NEW(weights.values, EXPORT_VALUES, "exported weights", &weights.turned);
    THEN(status, HOSTMEM_NEW(weights.values, 1, "adapter", &weights.adapter));
    const struct checkpoint_load_options verify = {
        .config = &checkpoint->config, .staging = weights.values, .staging_bytes = EXPORT_VALUES * sizeof(float)};
    THEN(status, checkpoint_load(checkpoint, &verify));
    if (status == GT_OK)
        *out = weights;
    else
        hostmem_free(weights.values);
    return status;
}

/* Divides each row by its root mean square, as the op rmsnorm does. */
static void rows_normalize(const struct model_config *config, size_t count, float *values)
{
    const size_t row = (size_t)config->n_embd;
    assert(count % row == 0);
    for (size_t first = 0; first < count; first += row) {
        double squares = 0.0;
        for (size_t i = 0; i < row; i++)
            squares += (double)values[first + i] * (double)values[first + i];
        const double root = sqrt(squares / (double)row + (double)(float)config->norm_epsilon);
        for (size_t i = 0; i < row; i++)
            values[first + i] = (float)((double)values[first + i] / root);
    }
}

/* Looks for a tensor's adapter and reads its factors, unless weights->adapter is that tensor's. */
static enum gt_status adapter_read(const struct export_weights *weights, const struct parameter_shape *tensor)
{
    const struct safetensors *file = weights->checkpoint->model;
    struct export_adapter *adapter = weights->adapter;
    const size_t rank = (size_t)weights->checkpoint->config.lora.rank;
    const bool gpt2 = model_is_gpt2(&weights->checkpoint->config);
    const size_t out = (size_t)tensor->dims[gpt2], in = (size_t)tensor->dims[!gpt2];
    char name[2 * PARAMETER_NAME_MAX];
    size_t a, b;
    const int length = snprintf(name, sizeof name, "base_model.model.%s%s", tensor->prefix, tensor->name);
    if (strcmp(name, adapter->tensor) == 0)
        return GT_OK;
    (void)snprintf(adapter->tensor, sizeof adapter->tensor, "%s", name);
    (void)snprintf(name + length - strlen("weight"), sizeof "lora_A.weight", "lora_A.weight");
    adapter->found = rank > 0 && tensor->rank == 2 && safetensors_find(file, name, &a);
    name[length - (int)strlen("weight") + (int)strlen("lora_")] = 'B';
    adapter->found = adapter->found && safetensors_find(file, name, &b);
    if (!adapter->found)
        return GT_OK;
    hostmem_free(adapter->factors);
    adapter->factors = NULL;
    TRY(HOSTMEM_NEW(adapter, rank * (in + out), "adapter", &adapter->factors));
    TRY(safetensors_read(file, a, 0, rank * in, adapter->factors, DTYPE_F32, NULL));
    return safetensors_read(file, b, 0, rank * out, adapter->factors + rank * in, DTYPE_F32, NULL);
}

/* Adds alpha / rank B A, or its transpose in GPT-2 unless the tensor is `turned`, to elements first ... of a tensor, if
 * it has an adapter. */
static enum gt_status adapter_add(const struct export_weights *weights, const struct parameter_shape *tensor,
                                  bool turned, size_t first, size_t count, float *values)
{
    const struct model_config *config = &weights->checkpoint->config;
    const size_t rank = (size_t)config->lora.rank, columns = (size_t)tensor->dims[!turned];
    const size_t in = (size_t)tensor->dims[!model_is_gpt2(config)];
    const bool is_turned = model_is_gpt2(config) != turned; /* the factors' product */
    TRY(adapter_read(weights, tensor));
    for (size_t i = 0; weights->adapter->found && i < count; i++) {
        const size_t row = (first + i) / columns, column = (first + i) % columns;
        const float *left = weights->adapter->factors + rank * in + rank * (is_turned ? column : row),
                    *right = weights->adapter->factors + (is_turned ? row : column);
        float sum = 0.0f;
        for (size_t k = 0; k < rank; k++)
            sum += left[k] * right[k * in];
        values[i] += (float)(config->lora.alpha / config->lora.rank) * sum;
    }
    return GT_OK;
}

/* Rounds to `dtype`.  Rejects a finite value that would become an infinity, since that would make the model useless. */
static enum gt_status narrow(const struct export_weights *weights, const struct parameter_shape *tensor,
                             const float *values, size_t count, enum dtype dtype, void *out)
{
    const uint16_t exponent = dtype == DTYPE_F16 ? 0x7C00 : 0x7F80;
    dtype_convert(out, dtype, values, DTYPE_F32, count);
    if (dtype == DTYPE_F32)
        return GT_OK;
    const uint16_t *bits = out;
    for (size_t i = 0; i < count; i++) {
        if ((bits[i] & exponent) != exponent)
            continue;
        return FAIL(GT_UNSUPPORTED, "%s: tensor %s: holds %g, which %s cannot hold", weights->checkpoint->source,
                    tensor->name, (double)values[i], dtype_name(dtype));
    }
    return GT_OK;
}

enum gt_status export_weights_read(const struct export_weights *weights, const struct parameter_shape *tensor,
                                   bool turned, size_t first, size_t count, enum dtype dtype, void *out)
{
    struct safetensors file = *weights->checkpoint->model;
    size_t index;
    assert(count <= weights->capacity && out != weights->values);
    TRY(hf_layout_find(&file, tensor, &index));
    struct safetensors_tensor source = file.tensors[index];
    if (turned) {
        source.transposed = !source.transposed;
        source.dims[0] = tensor->dims[1];
        source.dims[1] = tensor->dims[0];
    }
    file.tensors = &source;
    file.count = 1;
    TRY(safetensors_read(&file, 0, first, count, weights->values, DTYPE_F32, NULL));
    if (weights->checkpoint->config.embed_norm && tensor->whole == PARAMETERS_WTE)
        rows_normalize(&weights->checkpoint->config, count, weights->values);
    TRY(adapter_add(weights, tensor, turned, first, count, weights->values));
    return narrow(weights, tensor, weights->values, count, dtype, out);
}

/* Reads elements first ... of the tensor as the file orders them.  Without heads, it is one row. */
static enum gt_status rows_read(const struct export_weights *weights, const struct parameter_shape *tensor,
                                int32_t head_dim, size_t first, size_t count, enum dtype dtype)
{
    const size_t elements = parameter_elements(tensor), head = head_dim > 0 ? (size_t)head_dim : 1;
    const size_t columns = head_dim > 0 ? elements / (size_t)tensor->dims[0] : elements;
    for (size_t done = 0, run; done < count; done += run) {
        const size_t row = (first + done) / columns, column = (first + done) % columns, place = row % head;
        const size_t source = row - place + place / 2 + place % 2 * (head / 2);
        unsigned char *out = (unsigned char *)weights->turned + done * dtype_size_bytes(dtype);
        run = size_min(count - done, columns - column);
        TRY(export_weights_read(weights, tensor, tensor->linear, source * columns + column, run, dtype, out));
    }
    return GT_OK;
}

/* Encodes what rows_read() gave, into the buffer that it read through. */
static enum gt_status values_encode(const struct export_weights *weights, const struct parameter_shape *tensor,
                                    enum ggml_type type, size_t count)
{
    if (ggml_encode_parallel(type, weights->turned, count, (unsigned char *)weights->values, weights->threads))
        return GT_OK;
    return FAIL(GT_UNSUPPORTED, "%s: tensor %s: holds values with a scale that %s cannot hold",
                weights->checkpoint->source, tensor->name, ggml_blocks[type].name);
}

/* A piece has whole rows, where one fits, so that it has whole blocks. */
enum gt_status export_weights_write(const struct export_weights *weights, const struct parameter_shape *tensor,
                                    int32_t head_dim, enum ggml_type type, struct file_replacement *file)
{
    const size_t elements = parameter_elements(tensor);
    const size_t columns = tensor->rank == 2 ? (size_t)tensor->dims[!tensor->linear] : elements;
    const size_t unit = columns <= weights->capacity ? columns : ggml_blocks[type].values;
    const size_t most = weights->capacity / unit * unit;
    const bool blocks = ggml_blocks[type].dtype == DTYPE_COUNT;
    const void *bytes = blocks ? weights->values : weights->turned;
    for (size_t first = 0, count; first < elements; first += count) {
        count = size_min(elements - first, most);
        TRY(rows_read(weights, tensor, head_dim, first, count, blocks ? DTYPE_F32 : ggml_blocks[type].dtype));
        if (blocks)
            TRY(values_encode(weights, tensor, type, count));
        TRY(file_replacement_write(file, bytes, ggml_bytes(type, count)));
    }
    return GT_OK;
}

int32_t export_end_token(const struct export_options *options)
{
    const int32_t given = options->checkpoint->rest.eos_token;
    if (chat_kind_learnt(options->tokenizer) == CHAT_NONE && given >= 0 &&
        given < options->checkpoint->config.vocab_size)
        return given;
    return options->tokenizer != NULL ? chat_end_learnt(options->tokenizer) : -1;
}

enum gt_status export_zeros_write(struct file_replacement *file, size_t count)
{
    static const char zeros[4096];
    for (size_t done = 0; done < count; done += sizeof zeros)
        TRY(file_replacement_write(file, zeros, size_min(count - done, sizeof zeros)));
    return GT_OK;
}

/* ---- llm.c's file ---- */

#define LLMC_HEADER_WORDS (LLMC_MODEL_HEADER_BYTES / sizeof(int32_t))
#define LLMC_VOCAB_MULTIPLE 128

enum gt_status export_llmc_write(const struct export_options *options, const struct export_weights *weights)
{
    const struct model_config *config = &options->checkpoint->config;
    struct file_replacement file;
    const size_t padded = size_round_up((size_t)config->vocab_size, LLMC_VOCAB_MULTIPLE);
    const size_t padding_bytes =
        (padded - (size_t)config->vocab_size) * (size_t)config->n_embd * dtype_size_bytes(options->dtype);
    if (config->gelu != GELU_TANH)
        log_warning("the model was trained with gelu=erf, but llm.c computes tanh; logits will differ slightly");
    if (config->norm_epsilon != 1e-5)
        log_warning("the model's layer_norm_epsilon is %g, but llm.c's is 1e-05; logits will differ slightly",
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
        status = export_weights_write(weights, &shape, 0, ggml_type_of(options->dtype), &file);
        if (position == 0)
            THEN(status, export_zeros_write(&file, padding_bytes));
    }
    return file_replacement_end(&file, status);
}
