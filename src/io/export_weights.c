/* Reads the checkpoint's weights for a writer, in the order, layout and dtype of another format.
 *
 * A writer has the whole checkpoint verified first, by loading it and discarding the values.  A
 * matrix is transposed as it is read (safetensors.h).  Nothing of a tensor is kept after it has
 * been written.
 */
#include "io/export_weights.h"

#include <math.h>

#include "base/size.h"
#include "base/thread.h"
#include "data/chat.h"
#include "io/checkpoint_load.h"
#include "io/export_options.h"
#include "io/safetensors_table.h"

enum gt_status export_weights_open(const void *owner, const struct checkpoint *checkpoint,
                                   struct export_weights *out)
{
    const size_t row = (size_t)checkpoint->config.n_embd;
    struct export_weights weights = {.checkpoint = checkpoint,
                                     .threads = thread_count_available(),
                                     .capacity = row < EXPORT_VALUES ? EXPORT_VALUES / row * row
                                                                     : EXPORT_VALUES};
    TRY(HOSTMEM_NEW(owner, EXPORT_VALUES, "weights to export", &weights.values));
    enum gt_status status =
        HOSTMEM_NEW(weights.values, EXPORT_VALUES, "exported weights", &weights.turned);
    THEN(status, HOSTMEM_NEW(weights.values, 1, "adapter", &weights.adapter));
    if (status == GT_OK)
        *out = weights;
    else
        hostmem_free(weights.values);
    return status;
}

enum gt_status export_weights_verify(const struct export_weights *weights)
{
    const struct checkpoint_load_options verify = {.config = &weights->checkpoint->config,
                                                   .staging = weights->values,
                                                   .staging_bytes = EXPORT_VALUES * sizeof(float)};
    return checkpoint_load(weights->checkpoint, &verify);
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

/* Looks for a tensor's adapter and reads its factors, unless weights->adapter is already that of
 * this tensor. */
static enum gt_status adapter_read(const struct export_weights *weights,
                                   const struct parameter_shape *tensor)
{
    const struct safetensors *file = weights->checkpoint->model;
    struct export_adapter *adapter = weights->adapter;
    const size_t rank = (size_t)weights->checkpoint->config.lora.rank;
    const bool gpt2 = model_is_gpt2(&weights->checkpoint->config);
    const size_t out = (size_t)tensor->dims[gpt2], in = (size_t)tensor->dims[!gpt2];
    char name[2 * PARAMETER_NAME_MAX];
    size_t a, b;
    const int length =
        snprintf(name, sizeof name, "base_model.model.%s%s", tensor->prefix, tensor->name);
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

/* Adds alpha / rank B A, or its transpose in GPT-2 unless the tensor is `turned`, to elements first
 * ... of a tensor, if it has an adapter. */
static enum gt_status adapter_add(const struct export_weights *weights,
                                  const struct parameter_shape *tensor, bool turned, size_t first,
                                  size_t count, float *values)
{
    const struct model_config *config = &weights->checkpoint->config;
    const size_t rank = (size_t)config->lora.rank, columns = (size_t)tensor->dims[!turned];
    const size_t in = (size_t)tensor->dims[!model_is_gpt2(config)];
    const bool is_turned = model_is_gpt2(config) != turned; /* the factors' product */
    TRY(adapter_read(weights, tensor));
    for (size_t i = 0; weights->adapter->found && i < count; i++) {
        const size_t row = (first + i) / columns, column = (first + i) % columns;
        const float *left =
                        weights->adapter->factors + rank * in + rank * (is_turned ? column : row),
                    *right = weights->adapter->factors + (is_turned ? row : column);
        float sum = 0.0f;
        for (size_t k = 0; k < rank; k++)
            sum += left[k] * right[k * in];
        values[i] += (float)(config->lora.alpha / config->lora.rank) * sum;
    }
    return GT_OK;
}

/* Rounds to `dtype`.  Rejects a finite value that would become an infinity, since that would make
 * the model useless. */
static enum gt_status narrow(const struct export_weights *weights,
                             const struct parameter_shape *tensor, const float *values,
                             size_t count, enum dtype dtype, void *out)
{
    const uint16_t exponent = dtype == DTYPE_F16 ? 0x7C00 : 0x7F80;
    dtype_convert(out, dtype, values, DTYPE_F32, count);
    if (dtype == DTYPE_F32)
        return GT_OK;
    const uint16_t *bits = out;
    for (size_t i = 0; i < count; i++) {
        if ((bits[i] & exponent) != exponent)
            continue;
        return FAIL(GT_UNSUPPORTED, "%s: tensor %s: holds %g, which %s cannot hold",
                    weights->checkpoint->source, tensor->name, (double)values[i],
                    dtype_name(dtype));
    }
    return GT_OK;
}

enum gt_status export_weights_read(const struct export_weights *weights,
                                   const struct parameter_shape *tensor, bool turned, size_t first,
                                   size_t count, enum dtype dtype, void *out)
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

enum gt_status export_weights_gather(const struct export_weights *weights,
                                     const struct parameter_shape *tensor, bool turned,
                                     const struct tensor_form *form, size_t first, size_t count,
                                     enum dtype dtype)
{
    const struct tensor_order *to = &form->order;
    const struct tensor_order back = {to->first, to->unit, to->columns, to->rows};
    float *values = weights->turned;
    assert(form->map == NULL || dtype == DTYPE_F32);
    for (size_t done = 0, run; done < count; done += run) {
        const size_t place = tensor_order_place(&back, first + done, &run);
        run = size_min(count - done, run);
        TRY(export_weights_read(weights, tensor, turned, place, run, dtype,
                                (unsigned char *)values + done * dtype_size_bytes(dtype)));
    }
    for (size_t i = 0; form->map != NULL && i < count; i++) {
        const float value = values[i];
        values[i] = form->map(value);
        if (!isfinite(values[i]))
            return FAIL(GT_UNSUPPORTED, "%s: tensor %s: holds %g, which has no finite number there",
                        weights->checkpoint->source, tensor->name, (double)value);
    }
    return GT_OK;
}

/* Encodes weights->turned, which rows_read() filled, into weights->values. */
static enum gt_status values_encode(const struct export_weights *weights,
                                    const struct parameter_shape *tensor, enum ggml_type type,
                                    size_t count)
{
    if (ggml_encode_parallel(type, weights->turned, count, (unsigned char *)weights->values,
                             weights->threads))
        return GT_OK;
    return FAIL(GT_UNSUPPORTED, "%s: tensor %s: holds values with a scale that %s cannot hold",
                weights->checkpoint->source, tensor->name, ggml_blocks[type].name);
}

/* A piece consists of whole rows if one fits, and therefore of whole blocks. */
enum gt_status export_weights_write(const struct export_weights *weights,
                                    const struct parameter_shape *tensor,
                                    const struct tensor_form *form, enum ggml_type type,
                                    struct file_replacement *file)
{
    const size_t elements = parameter_elements(tensor);
    const size_t columns = tensor->rank == 2 ? (size_t)tensor->dims[!tensor->linear] : elements;
    const size_t unit = columns <= weights->capacity ? columns : ggml_blocks[type].values;
    const size_t most = weights->capacity / unit * unit;
    const bool blocks = ggml_blocks[type].dtype == DTYPE_COUNT;
    const void *bytes = blocks ? weights->values : weights->turned;
    for (size_t first = 0, count; first < elements; first += count) {
        count = size_min(elements - first, most);
        TRY(export_weights_gather(weights, tensor, tensor->linear, form, first, count,
                                  blocks ? DTYPE_F32 : ggml_blocks[type].dtype));
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
