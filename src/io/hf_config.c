/* Reads and writes config.json.
 *
 * Each field is checked for type and range, and then for a value that this program supports: a flag that would change
 * the mathematics is rejected by name, never ignored.  Fields that only concern generation or training elsewhere
 * (initializer_range, summary_*, use_cache) are ignored.  The trainer calls model_config_check() on every
 * configuration, which checks the shapes again.
 */
#include "io/hf_config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "io/hf_config_fields.h"
#include "io/hf_config_llama.h"

static json_t *gpt2_make(const struct model_config *config, int32_t bos_token, int32_t eos_token)
{
    const double dropout = hf_shortest_double(config->dropout);
    const char *activation = config->gelu == GELU_TANH ? "gelu_new" : "gelu";
    return json_pack(
        "{s:[s], s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:n, s:s, s:f, s:f, s:f, s:f, s:b, s:b, s:b, s:b, s:o, s:o, s:s, "
        "s:{s:b}}",
        "architectures", "GPT2LMHeadModel", "model_type", "gpt2", "vocab_size", config->vocab_size, "n_positions",
        config->block_size, "n_ctx", config->block_size, "n_embd", config->n_embd, "n_layer", config->n_layer, "n_head",
        config->n_head, "n_inner", "activation_function", activation, "layer_norm_epsilon", config->norm_epsilon,
        "attn_pdrop", dropout, "embd_pdrop", dropout, "resid_pdrop", dropout, "scale_attn_weights", 1,
        "scale_attn_by_inverse_layer_idx", 0, "reorder_and_upcast_attn", 0, "tie_word_embeddings", 1, "bos_token_id",
        hf_token_json(bos_token), "eos_token_id", hf_token_json(eos_token), "torch_dtype", "float32", "gpt_train",
        "bias", (int)config->bias);
}

enum gt_status hf_config_make(const struct model_config *config, int32_t bos_token, int32_t eos_token, json_t **out)
{
    json_t *root = model_is_gpt2(config) ? gpt2_make(config, bos_token, eos_token)
                                         : hf_config_llama_make(config, bos_token, eos_token);
    if (root == NULL) {
        log_error("out of memory: config.json could not be made");
        return GT_NO_MEMORY;
    }
    *out = root;
    return GT_OK;
}

static enum gt_status sizes_parse(const json_t *root, const char *source, struct model_config *config)
{
    TRY(hf_size_field(root, source, "vocab_size", &config->vocab_size));
    TRY(hf_size_field(root, source, "n_positions", &config->block_size));
    TRY(hf_size_field(root, source, "n_embd", &config->n_embd));
    TRY(hf_size_field(root, source, "n_layer", &config->n_layer));
    TRY(hf_size_field(root, source, "n_head", &config->n_head));
    config->n_kv_head = config->n_head;
    config->padded_vocab_size = config->vocab_size;
    if (config->n_embd % config->n_head != 0) {
        log_error("%s: field \"n_head\": %d does not divide n_embd, %d", source, config->n_head, config->n_embd);
        return GT_DATA;
    }
    if (!hf_has(root, "n_inner"))
        return GT_OK;
    int64_t inner;
    TRY(json_get_int(root, source, "n_inner", 1, (int64_t)4 * HF_SIZE_MAX, &inner));
    if (inner == (int64_t)4 * config->n_embd)
        return GT_OK;
    log_error("%s: field \"n_inner\": %lld is not supported; only null and 4 n_embd = %lld are", source,
              (long long)inner, (long long)config->n_embd * 4);
    return GT_UNSUPPORTED;
}

static enum gt_status activation_parse(const json_t *root, const char *source, enum gelu_kind *out)
{
    const char *name = "gelu_new";
    if (hf_has(root, "activation_function"))
        TRY(json_get_string(root, source, "activation_function", &name));
    if (strcmp(name, "gelu_new") == 0 || strcmp(name, "gelu_pytorch_tanh") == 0) {
        *out = GELU_TANH;
    } else if (strcmp(name, "gelu") == 0) {
        *out = GELU_ERF;
    } else {
        log_error("%s: field \"activation_function\": \"%.64s\" is not supported; gelu_new, gelu_pytorch_tanh and "
                  "gelu are",
                  source, name);
        return GT_UNSUPPORTED;
    }
    return GT_OK;
}

/* Checks the fields that would change what the model computes. */
static enum gt_status flags_parse(const json_t *root, const char *source)
{
    TRY(hf_flag_expect(root, source, "scale_attn_weights", true));
    TRY(hf_flag_expect(root, source, "scale_attn_by_inverse_layer_idx", false));
    TRY(hf_flag_expect(root, source, "reorder_and_upcast_attn", false));
    return hf_flag_expect(root, source, "add_cross_attention", false);
}

static enum gt_status ours_parse(const json_t *root, const char *source, bool *bias)
{
    const json_t *ours;
    if (!hf_has(root, "gpt_train"))
        return GT_OK;
    TRY(json_get_object(root, source, "gpt_train", &ours));
    return json_get_bool(ours, source, "bias", bias);
}

static enum gt_status gpt2_parse(const json_t *root, const char *source, struct model_config *out)
{
    struct model_config config = {.bias = true, .dropout = 0.1f, .norm_epsilon = 1e-5};
    double dropout = (double)config.dropout;
    TRY(flags_parse(root, source));
    TRY(sizes_parse(root, source, &config));
    TRY(activation_parse(root, source, &config.gelu));
    TRY(hf_real_field(root, source, "layer_norm_epsilon", 1e-12, 1.0, &config.norm_epsilon));
    TRY(hf_real_field(root, source, "resid_pdrop", 0.0, 1.0, &dropout));
    TRY(ours_parse(root, source, &config.bias));
    config.dropout = (float)dropout;
    *out = config;
    return GT_OK;
}

static enum gt_status rest_parse(const json_t *root, const char *source, bool tied, struct hf_config_rest *rest)
{
    rest->tied = tied;
    if (hf_has(root, "tie_word_embeddings"))
        TRY(json_get_bool(root, source, "tie_word_embeddings", &rest->tied));
    TRY(hf_token_field(root, source, "bos_token_id", &rest->bos_token));
    return hf_token_field(root, source, "eos_token_id", &rest->eos_token);
}

enum gt_status hf_config_parse(const json_t *root, const char *source, struct model_config *out,
                               struct hf_config_rest *out_rest)
{
    struct model_config config;
    struct hf_config_rest rest;
    const char *type;
    TRY(json_get_string(root, source, "model_type", &type));
    const bool gpt2 = strcmp(type, "gpt2") == 0;
    TRY(rest_parse(root, source, gpt2, &rest));
    if (gpt2) {
        TRY(gpt2_parse(root, source, &config));
    } else {
        TRY(hf_config_llama_parse(root, source, &config));
        config.untied = !rest.tied;
    }
    *out = config;
    *out_rest = rest;
    return GT_OK;
}
