/* Writes llm.c's checkpoint file.
 *
 * The tensors are in GPT-2's order, but with all layers of one kind together; linear weights are [out, in].  llm.c
 * always computes the tanh form of GELU and uses an epsilon of 1e-5, so a model that differs is written with a warning.
 * It keeps its tokenizer in another file, which is not written.
 */
#include "base/size.h"
#include "io/export.h"
#include "io/llmc_model.h"

#define HEADER_WORDS (LLMC_MODEL_HEADER_BYTES / sizeof(int32_t))
#define VOCAB_MULTIPLE 128

static void differences_log(const struct model_config *config)
{
    if (config->gelu != GELU_TANH)
        log_warning("the model was trained with gelu=erf, but llm.c computes tanh; logits will differ slightly");
    if (config->norm_epsilon != 1e-5)
        log_warning("the model's layer_norm_epsilon is %g, but llm.c's is 1e-05; logits will differ slightly",
                    config->norm_epsilon);
}

static enum gt_status body_write(const struct export_weights *weights, enum dtype dtype, size_t padding_bytes,
                                 struct file_replacement *file)
{
    const struct model_config *config = &weights->checkpoint->config;
    for (size_t position = 0; position < parameters_count(config); position++) {
        struct parameter_shape shape;
        parameters_shape(config, llmc_model_index(config, position), &shape);
        TRY(export_weights_write(weights, &shape, 0, dtype, file));
        if (position == 0)
            TRY(export_zeros_write(file, padding_bytes));
    }
    return GT_OK;
}

enum gt_status export_llmc_write(const struct export_options *options, const struct export_weights *weights)
{
    const struct model_config *config = &options->checkpoint->config;
    struct file_replacement file;
    const size_t padded = size_round_up((size_t)config->vocab_size, VOCAB_MULTIPLE);
    const size_t padding_bytes =
        (padded - (size_t)config->vocab_size) * (size_t)config->n_embd * dtype_size_bytes(options->dtype);
    differences_log(config);
    const int32_t header[HEADER_WORDS] = {
        LLMC_MODEL_MAGIC,   options->dtype == DTYPE_F32 ? LLMC_MODEL_F32 : LLMC_MODEL_BF16,
        config->block_size, config->vocab_size,
        config->n_layer,    config->n_head,
        config->n_embd,     (int32_t)padded};
    TRY(file_replacement_begin(&file, options->output, NULL));
    enum gt_status status = file_replacement_write(&file, header, sizeof header);
    THEN(status, body_write(weights, options->dtype, padding_bytes, &file));
    return file_replacement_end(&file, status);
}
