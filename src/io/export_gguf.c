/* Writes GPT-2 as a GGUF file: keys, list of tensors, data.
 *
 * The same function makes the keys twice, the first time to count them.  Tensors are in the model's order, followed by
 * the output layer, a copy of the embedding that old versions of llama.cpp need.  llama.cpp computes the tanh form of
 * GELU, so a model trained with the erf form is written with a warning.
 */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/size.h"
#include "io/export_gguf_tokens.h"
#include "io/export_internal.h"
#include "io/gguf.h"

#define NAME_MAX_BYTES 64
#define OUTSIDE_BEFORE 2 /* wte, wpe */
#define PER_LAYER 12

/* A tensor of the file. */
struct entry {
    struct parameter_shape source;
    char name[NAME_MAX_BYTES];
    enum dtype dtype;
    size_t size_bytes;
};

static enum gt_status head_write(const struct export_options *options, struct gguf *gguf);
static enum gt_status data_write(const struct export_options *options, const struct export_weights *weights,
                                 struct file_replacement *file);

enum gt_status export_gguf_write(const struct export_options *options, const struct export_weights *weights)
{
    struct gguf *gguf;
    struct file_replacement file;
    if (options->checkpoint->config.gelu != GELU_TANH)
        log_warning("the model was trained with gelu=erf, but llama.cpp computes tanh; logits will differ slightly");
    export_gguf_tokens_log(options->tokenizer);
    TRY(HOSTMEM_NEW(options->mem, 1, "GGUF writer", &gguf));
    enum gt_status status = file_replacement_begin(&file, options->output);
    if (status == GT_OK) {
        gguf->file = &file;
        status = head_write(options, gguf);
        if (status == GT_OK)
            status = data_write(options, weights, &file);
        status = file_replacement_end(&file, status);
    }
    hostmem_free(options->mem, gguf);
    return status;
}

static void keys_write(const struct export_options *options, struct gguf *gguf)
{
    const struct model_config *config = &options->checkpoint->config;
    gguf_key_string(gguf, "general.architecture", "gpt2");
    gguf_key_string(gguf, "general.type", "model");
    gguf_key_string(gguf, "general.name", options->name);
    gguf_key_u32(gguf, "general.file_type", gguf_file_type(options->dtype));
    gguf_key_u32(gguf, "general.alignment", GGUF_ALIGNMENT);
    gguf_key_u32(gguf, "gpt2.vocab_size", (uint32_t)config->vocab_size);
    gguf_key_u32(gguf, "gpt2.block_count", (uint32_t)config->n_layer);
    gguf_key_u32(gguf, "gpt2.context_length", (uint32_t)config->block_size);
    gguf_key_u32(gguf, "gpt2.embedding_length", (uint32_t)config->n_embd);
    gguf_key_u32(gguf, "gpt2.feed_forward_length", 4 * (uint32_t)config->n_embd);
    gguf_key_u32(gguf, "gpt2.attention.head_count", (uint32_t)config->n_head);
    gguf_key_f32(gguf, "gpt2.attention.layer_norm_epsilon", config->layernorm_epsilon);
    export_gguf_tokens_write(gguf, options->tokenizer, config->vocab_size);
}

/* The output layer is not in GPT-2's own list of tensors. */
static size_t entry_count(const struct model_config *config)
{
    return parameters_count(config) + 1;
}

static void entry_name(const struct model_config *config, size_t index, char out[static NAME_MAX_BYTES])
{
    static const char *const pairs[PER_LAYER / 2] = {"attn_norm", "attn_qkv", "attn_output",
                                                     "ffn_norm",  "ffn_up",   "ffn_down"};
    const size_t blocks = PER_LAYER * (size_t)config->n_layer, in_blocks = index - OUTSIDE_BEFORE;
    if (index < OUTSIDE_BEFORE)
        (void)snprintf(out, NAME_MAX_BYTES, "%s", index == 0 ? "token_embd.weight" : "position_embd.weight");
    else if (in_blocks < blocks)
        (void)snprintf(out, NAME_MAX_BYTES, "blk.%zu.%s.%s", in_blocks / PER_LAYER, pairs[in_blocks % PER_LAYER / 2],
                       in_blocks % 2 == 0 ? "weight" : "bias");
    else if (in_blocks < blocks + 2)
        (void)snprintf(out, NAME_MAX_BYTES, "output_norm.%s", in_blocks == blocks ? "weight" : "bias");
    else
        (void)snprintf(out, NAME_MAX_BYTES, "output.weight");
}

static enum gt_status entry_get(const struct export_options *options, size_t index, struct entry *out)
{
    const struct model_config *config = &options->checkpoint->config;
    parameters_shape(config, index < parameters_count(config) ? index : 0, &out->source);
    entry_name(config, index, out->name);
    const bool wide = out->source.rank == 1 || out->source.position_table;
    out->dtype = wide ? DTYPE_F32 : options->dtype;
    if (size_mul(parameter_elements(&out->source), dtype_size_bytes(out->dtype), &out->size_bytes))
        return GT_OK;
    log_error("%s: tensor %s does not fit 64 bits", options->output, out->name);
    return GT_UNSUPPORTED;
}

/* ne[0] is the fastest dimension: the inputs of a linear layer after its transposition, the channels of a table. */
static void info_write(const struct entry *entry, uint64_t offset, struct gguf *gguf)
{
    const struct parameter_shape *source = &entry->source;
    const bool linear = parameter_is_linear(source);
    gguf_string(gguf, entry->name, strlen(entry->name));
    gguf_u32(gguf, (uint32_t)source->rank);
    if (source->rank == 2)
        gguf_u64(gguf, (uint64_t)source->dims[linear ? 0 : 1]);
    gguf_u64(gguf, (uint64_t)source->dims[linear ? 1 : 0]);
    gguf_u32(gguf, gguf_tensor_type(entry->dtype));
    gguf_u64(gguf, offset);
}

static enum gt_status head_write(const struct export_options *options, struct gguf *gguf)
{
    struct file_replacement *file = gguf->file;
    const size_t count = entry_count(&options->checkpoint->config);
    size_t offset = 0;
    gguf->file = NULL;
    keys_write(options, gguf);
    const uint64_t keys = gguf->keys;
    *gguf = (struct gguf){.file = file};
    gguf_bytes(gguf, "GGUF", 4);
    gguf_u32(gguf, GGUF_VERSION);
    gguf_u64(gguf, count);
    gguf_u64(gguf, keys);
    keys_write(options, gguf);
    assert(gguf->keys == keys);
    for (size_t i = 0; i < count; i++) {
        struct entry entry;
        TRY(entry_get(options, i, &entry));
        info_write(&entry, offset, gguf);
        offset += size_round_up(entry.size_bytes, GGUF_ALIGNMENT);
    }
    gguf_align(gguf);
    return gguf_flush(gguf);
}

static enum gt_status data_write(const struct export_options *options, const struct export_weights *weights,
                                 struct file_replacement *file)
{
    for (size_t i = 0; i < entry_count(&options->checkpoint->config); i++) {
        struct entry entry;
        TRY(entry_get(options, i, &entry));
        TRY(export_weights_write(weights, &entry.source, entry.dtype, file));
        TRY(export_zeros_write(file, size_round_up(entry.size_bytes, GGUF_ALIGNMENT) - entry.size_bytes));
    }
    return GT_OK;
}
