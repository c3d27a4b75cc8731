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

#define SIZE_MAX_FIELD 16777216 /* far beyond any model, and small enough that a product of two fits 64 bits */

/* Returns the double with the fewest digits that rounds to `value`: 1e-05 instead of 9.99999974737875e-06. */
static double shortest_double(float value)
{
    char text[32];
    for (int digits = 1; digits < 9; digits++) {
        (void)snprintf(text, sizeof text, "%.*g", digits, (double)value);
        if (strtof(text, NULL) == value)
            return strtod(text, NULL);
    }
    return (double)value;
}

static json_t *token_json(int32_t token)
{
    return token < 0 ? json_null() : json_integer(token);
}

enum gt_status hf_config_make(const struct model_config *config, int32_t bos_token, int32_t eos_token, json_t **out)
{
    if (config->n_kv_head != config->n_head) {
        log_error("a checkpoint in GPT-2's layout cannot hold this model's norm, position, mlp or n_kv_head");
        return GT_UNSUPPORTED;
    }
    const double dropout = shortest_double(config->dropout);
    const char *activation = config->gelu == GELU_TANH ? "gelu_new" : "gelu";
    json_t *root = json_pack(
        "{s:[s], s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:n, s:s, s:f, s:f, s:f, s:f, s:b, s:b, s:b, s:b, s:o, s:o, s:s, "
        "s:{s:b}}",
        "architectures", "GPT2LMHeadModel", "model_type", "gpt2", "vocab_size", config->vocab_size, "n_positions",
        config->block_size, "n_ctx", config->block_size, "n_embd", config->n_embd, "n_layer", config->n_layer, "n_head",
        config->n_head, "n_inner", "activation_function", activation, "layer_norm_epsilon",
        shortest_double(config->norm_epsilon), "attn_pdrop", dropout, "embd_pdrop", dropout, "resid_pdrop", dropout,
        "scale_attn_weights", 1, "scale_attn_by_inverse_layer_idx", 0, "reorder_and_upcast_attn", 0,
        "tie_word_embeddings", 1, "bos_token_id", token_json(bos_token), "eos_token_id", token_json(eos_token),
        "torch_dtype", "float32", "gpt_train", "bias", (int)config->bias);
    if (root == NULL) {
        log_error("out of memory: config.json could not be made");
        return GT_NO_MEMORY;
    }
    *out = root;
    return GT_OK;
}

/* Returns true when a field is present with a value; null means the default, as in transformers. */
static bool has(const json_t *root, const char *name)
{
    const json_t *value = json_object_get(root, name);
    return value != NULL && !json_is_null(value);
}

/* Checks a flag that must have the value that this program supports. */
static enum gt_status flag_expect(const json_t *root, const char *source, const char *name, bool expected)
{
    bool value = expected;
    if (has(root, name))
        TRY(json_get_bool(root, source, name, &value));
    if (value == expected)
        return GT_OK;
    log_error("%s: field \"%s\": %s is not supported; only %s is", source, name, value ? "true" : "false",
              expected ? "true" : "false");
    return GT_UNSUPPORTED;
}

static enum gt_status size_field(const json_t *root, const char *source, const char *name, int32_t *out)
{
    int64_t value;
    TRY(json_get_int(root, source, name, 1, SIZE_MAX_FIELD, &value));
    *out = (int32_t)value;
    return GT_OK;
}

static enum gt_status sizes_parse(const json_t *root, const char *source, struct model_config *config)
{
    TRY(size_field(root, source, "vocab_size", &config->vocab_size));
    TRY(size_field(root, source, "n_positions", &config->block_size));
    TRY(size_field(root, source, "n_embd", &config->n_embd));
    TRY(size_field(root, source, "n_layer", &config->n_layer));
    TRY(size_field(root, source, "n_head", &config->n_head));
    config->n_kv_head = config->n_head;
    config->padded_vocab_size = config->vocab_size;
    if (config->n_embd % config->n_head != 0) {
        log_error("%s: field \"n_head\": %d does not divide n_embd, %d", source, config->n_head, config->n_embd);
        return GT_DATA;
    }
    if (!has(root, "n_inner"))
        return GT_OK;
    int64_t inner;
    TRY(json_get_int(root, source, "n_inner", 1, (int64_t)4 * SIZE_MAX_FIELD, &inner));
    if (inner == (int64_t)4 * config->n_embd)
        return GT_OK;
    log_error("%s: field \"n_inner\": %lld is not supported; only null and 4 n_embd = %lld are", source,
              (long long)inner, (long long)config->n_embd * 4);
    return GT_UNSUPPORTED;
}

static enum gt_status activation_parse(const json_t *root, const char *source, enum gelu_kind *out)
{
    const char *name = "gelu_new";
    if (has(root, "activation_function"))
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

/* Reads a real in [min, max); leaves *value unchanged if the field is absent. */
static enum gt_status real_field(const json_t *root, const char *source, const char *name, double min, double max,
                                 float *value)
{
    double number;
    if (!has(root, name))
        return GT_OK;
    TRY(json_get_real(root, source, name, &number));
    if (!(number >= min && number < max)) {
        log_error("%s: field \"%s\": %g is not in [%g, %g)", source, name, number, min, max);
        return GT_DATA;
    }
    *value = (float)number;
    return GT_OK;
}

static enum gt_status token_field(const json_t *root, const char *source, const char *name, int32_t *out)
{
    int64_t token = -1;
    if (has(root, name))
        TRY(json_get_int(root, source, name, 0, INT32_MAX, &token));
    *out = (int32_t)token;
    return GT_OK;
}

/* Checks the fields that would change what the model computes. */
static enum gt_status flags_parse(const json_t *root, const char *source, struct hf_config_rest *rest)
{
    const char *type;
    TRY(json_get_string(root, source, "model_type", &type));
    if (strcmp(type, "gpt2") != 0) {
        log_error("%s: field \"model_type\": \"%.64s\" is not supported; only gpt2 is", source, type);
        return GT_UNSUPPORTED;
    }
    TRY(flag_expect(root, source, "scale_attn_weights", true));
    TRY(flag_expect(root, source, "scale_attn_by_inverse_layer_idx", false));
    TRY(flag_expect(root, source, "reorder_and_upcast_attn", false));
    TRY(flag_expect(root, source, "add_cross_attention", false));
    rest->tied = true;
    if (has(root, "tie_word_embeddings"))
        TRY(json_get_bool(root, source, "tie_word_embeddings", &rest->tied));
    TRY(token_field(root, source, "bos_token_id", &rest->bos_token));
    return token_field(root, source, "eos_token_id", &rest->eos_token);
}

static enum gt_status ours_parse(const json_t *root, const char *source, bool *bias)
{
    const json_t *ours;
    if (!has(root, "gpt_train"))
        return GT_OK;
    TRY(json_get_object(root, source, "gpt_train", &ours));
    return json_get_bool(ours, source, "bias", bias);
}

enum gt_status hf_config_parse(const json_t *root, const char *source, struct model_config *out,
                               struct hf_config_rest *out_rest)
{
    struct model_config config = {.bias = true, .dropout = 0.1f, .norm_epsilon = 1e-5f};
    struct hf_config_rest rest;
    TRY(flags_parse(root, source, &rest));
    TRY(sizes_parse(root, source, &config));
    TRY(activation_parse(root, source, &config.gelu));
    TRY(real_field(root, source, "layer_norm_epsilon", 1e-12, 1.0, &config.norm_epsilon));
    TRY(real_field(root, source, "resid_pdrop", 0.0, 1.0, &config.dropout));
    TRY(ours_parse(root, source, &config.bias));
    *out = config;
    *out_rest = rest;
    return GT_OK;
}
