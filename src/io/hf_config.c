/* config.json: reads and writes a model's shape in the terms of transformers' classes.
 *
 * Each field is checked for type and range, and then for a value that this program supports: a field that would change
 * the mathematics is refused by name and value, never ignored.  A value that is absent or null leaves the default, as
 * in transformers.  Fields that only concern generation or training elsewhere (initializer_range, summary_*,
 * use_cache) are ignored; those that are set and not known here are named in one warning.  The trainer calls
 * model_config_check() on every configuration, which checks the shapes again.  A model that no class holds has the
 * type "gpt_train"; what Llama's fields do not say of it is in the object "gpt_train".
 */
#include "io/hf_config.h"

#define UNKNOWN_TEXT_MAX 512
#define WINDOW_DEFAULT 4096      /* sliding_window, of all classes that have it */
#define WINDOW_LAYERS_DEFAULT 28 /* max_window_layers */
#define HF_SIZE_MAX 16777216     /* far beyond any model, and small enough that a product of two fits 64 bits */
#define OWN_TYPE "gpt_train"

/* ---- fields ---- */
/* Returns the double with the fewest digits that rounds to `value`: 0.1 instead of 0.100000001490116. */
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

/* Returns the id of a token, or null if it is unknown. */
static json_t *token_json(int32_t token)
{
    return token < 0 ? json_null() : json_integer(token);
}

/* Returns true when a field is present with a value. */
static bool has(const json_t *root, const char *name)
{
    const json_t *value = json_object_get(root, name);
    return value != NULL && !json_is_null(value);
}

/* Reads a field by a getter of json.h, or leaves *out unchanged if it is absent or null. */
#define OPTIONAL(get, root, source, name, out) (has(root, name) ? get(root, source, name, out) : GT_OK)

static enum gt_status refuse_text(const char *source, const char *name, const char *value, const char *supported)
{
    return FAIL(GT_UNSUPPORTED, "%s: field \"%s\": \"%.64s\" is not supported; %s", source, name, value, supported);
}

/* Checks a flag that must have the value that this program supports, if it is present. */
static enum gt_status flag_expect(const json_t *root, const char *source, const char *name, bool expected)
{
    bool value = expected;
    TRY(OPTIONAL(json_get_bool, root, source, name, &value));
    if (value == expected)
        return GT_OK;
    return FAIL(GT_UNSUPPORTED, "%s: field \"%s\": %s is not supported; only %s is", source, name,
                value ? "true" : "false", expected ? "true" : "false");
}

enum gt_status hf_size_field(const json_t *root, const char *source, const char *name, int32_t *out)
{
    int64_t value;
    TRY(json_get_int(root, source, name, 1, HF_SIZE_MAX, &value));
    *out = (int32_t)value;
    return GT_OK;
}

enum gt_status hf_real_field(const json_t *root, const char *source, const char *name, double min, double max,
                             double *value)
{
    double number;
    if (!has(root, name))
        return GT_OK;
    TRY(json_get_real(root, source, name, &number));
    if (!(number >= min && number < max))
        return FAIL(GT_DATA, "%s: field \"%s\": %g is not in [%g, %g)", source, name, number, min, max);
    *value = number;
    return GT_OK;
}

/* Reads the id of a token.  The field may be one id or a list, whose first id is taken.  *out is -1 if it is absent. */
static enum gt_status token_field(const json_t *root, const char *source, const char *name, int32_t *out)
{
    const json_t *value = json_object_get(root, name);
    const json_t *token = json_array_size(value) > 0 ? json_array_get(value, 0) : value;
    *out = -1;
    if (token == NULL || json_is_null(token))
        return GT_OK;
    if (!json_is_integer(token) || json_integer_value(token) < 0 || json_integer_value(token) > INT32_MAX)
        return FAIL(GT_DATA, "%s: field \"%s\": expected a token's id, or a list of them", source, name);
    *out = (int32_t)json_integer_value(token);
    return GT_OK;
}

/* ---- GPT2Config ---- */

static json_t *gpt2_make(const struct model_config *config, int32_t bos_token, int32_t eos_token)
{
    const double dropout = shortest_double(config->dropout);
    const char *activation = config->gelu == GELU_TANH ? "gelu_new" : "gelu";
    return json_pack(
        "{s:[s], s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:n, s:s, s:f, s:f, s:f, s:f, s:b, s:b, s:b, s:b, s:o, s:o, s:s, "
        "s:{s:b}}",
        "architectures", "GPT2LMHeadModel", "model_type", "gpt2", "vocab_size", config->vocab_size, "n_positions",
        config->block_size, "n_ctx", config->block_size, "n_embd", config->n_embd, "n_layer", config->n_layer, "n_head",
        config->n_head, "n_inner", "activation_function", activation, "layer_norm_epsilon", config->norm_epsilon,
        "attn_pdrop", dropout, "embd_pdrop", dropout, "resid_pdrop", dropout, "scale_attn_weights", 1,
        "scale_attn_by_inverse_layer_idx", 0, "reorder_and_upcast_attn", 0, "tie_word_embeddings", 1, "bos_token_id",
        token_json(bos_token), "eos_token_id", token_json(eos_token), "torch_dtype", "float32", "gpt_train", "bias",
        (int)config->bias);
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
    if (config->n_embd % config->n_head != 0)
        return FAIL(GT_DATA, "%s: field \"n_head\": %d does not divide n_embd, %d", source, config->n_head,
                    config->n_embd);
    if (!has(root, "n_inner"))
        return GT_OK;
    int64_t inner;
    TRY(json_get_int(root, source, "n_inner", 1, (int64_t)4 * HF_SIZE_MAX, &inner));
    if (inner == (int64_t)4 * config->n_embd)
        return GT_OK;
    return FAIL(GT_UNSUPPORTED, "%s: field \"n_inner\": %lld is not supported; only null and 4 n_embd = %lld are",
                source, (long long)inner, (long long)config->n_embd * 4);
}

static enum gt_status activation_parse(const json_t *root, const char *source, enum gelu_kind *out)
{
    const char *name = "gelu_new";
    TRY(OPTIONAL(json_get_string, root, source, "activation_function", &name));
    const bool is_tanh = strcmp(name, "gelu_new") == 0 || strcmp(name, "gelu_pytorch_tanh") == 0;
    if (!is_tanh && strcmp(name, "gelu") != 0)
        return refuse_text(source, "activation_function", name, "gelu_new, gelu_pytorch_tanh and gelu are");
    *out = is_tanh ? GELU_TANH : GELU_ERF;
    return GT_OK;
}

/* Fields of every class that change nothing here.  Source: transformers, configuration_utils.py. */
static const char *const harmless[] = {"model_type",
                                       "architectures",
                                       "transformers_version",
                                       "name_or_path",
                                       "vocab_size",
                                       "tie_word_embeddings",
                                       "torch_dtype",
                                       "dtype",
                                       "bos_token_id",
                                       "eos_token_id",
                                       "pad_token_id",
                                       "sep_token_id",
                                       "decoder_start_token_id",
                                       "initializer_range",
                                       "use_cache",
                                       "use_return_dict",
                                       "return_dict",
                                       "output_attentions",
                                       "output_hidden_states",
                                       "output_past",
                                       "torchscript",
                                       "use_bfloat16",
                                       "gradient_checkpointing",
                                       "attn_implementation",
                                       "pretraining_tp",
                                       "chunk_size_feed_forward",
                                       "is_decoder",
                                       "id2label",
                                       "label2id",
                                       "num_labels",
                                       "problem_type",
                                       "finetuning_task",
                                       "task_specific_params",
                                       "tokenizer_class",
                                       "model_max_length",
                                       "prefix",
                                       "language",
                                       "is_llama_config",
                                       "transformers.js_config",
                                       "resid_pdrop",
                                       "embd_pdrop",
                                       "attn_pdrop",
                                       "summary_type",
                                       "summary_use_proj",
                                       "summary_activation",
                                       "summary_proj_to_labels",
                                       "summary_first_dropout",
                                       "do_sample",
                                       "temperature",
                                       "top_k",
                                       "top_p",
                                       "typical_p",
                                       "min_p",
                                       "max_length",
                                       "min_length",
                                       "max_new_tokens",
                                       "num_beams",
                                       "num_beam_groups",
                                       "num_return_sequences",
                                       "repetition_penalty",
                                       "length_penalty",
                                       "diversity_penalty",
                                       "no_repeat_ngram_size",
                                       "encoder_no_repeat_ngram_size",
                                       OWN_TYPE,
                                       NULL};

/* Names the fields that are set, are not among those that are read, `known`, and are not harmless. */
static void unknown_report(const json_t *root, const char *source, const char *const *known)
{
    const char *const *const lists[] = {harmless, known};
    char list[UNKNOWN_TEXT_MAX] = "";
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)root, name, value)
    {
        const size_t used = strlen(list), size = json_array_size(value) + json_object_size(value);
        const bool number = json_is_number(value) && json_number_value(value) != 0.0;
        bool fine = !json_is_true(value) && !number && size + json_string_length(value) == 0;
        fine = fine || name[0] == '_' || strncmp(name, "unsloth_", 8) == 0;
        for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++)
            for (size_t k = 0; lists[i][k] != NULL; k++)
                fine = fine || strcmp(name, lists[i][k]) == 0;
        if (!fine)
            (void)snprintf(list + used, sizeof list - used, "%s\"%.64s\": %s", used > 0 ? ", " : "", name,
                           JSON_SHORT_TEXT(value));
    }
    if (list[0] != '\0')
        log_warning("%s: %s: not known here and ignored; if they change the model, its losses will be wrong", source,
                    list);
}

static enum gt_status gpt2_parse(const json_t *root, const char *source, struct model_config *out)
{
    static const char *const known[] = {"n_positions",
                                        "n_ctx",
                                        "n_embd",
                                        "n_layer",
                                        "n_head",
                                        "n_inner",
                                        "activation_function",
                                        "layer_norm_epsilon",
                                        "scale_attn_weights",
                                        "scale_attn_by_inverse_layer_idx",
                                        "reorder_and_upcast_attn",
                                        "add_cross_attention",
                                        NULL};
    struct model_config config = {.bias = true, .dropout = 0.1f, .norm_epsilon = 1e-5};
    double dropout = (double)config.dropout;
    const json_t *ours = NULL;
    TRY(flag_expect(root, source, "scale_attn_weights", true));
    TRY(flag_expect(root, source, "scale_attn_by_inverse_layer_idx", false));
    TRY(flag_expect(root, source, "reorder_and_upcast_attn", false));
    TRY(flag_expect(root, source, "add_cross_attention", false));
    TRY(sizes_parse(root, source, &config));
    TRY(activation_parse(root, source, &config.gelu));
    TRY(hf_real_field(root, source, "layer_norm_epsilon", 1e-12, 1.0, &config.norm_epsilon));
    TRY(hf_real_field(root, source, "resid_pdrop", 0.0, 1.0, &dropout));
    TRY(OPTIONAL(json_get_object, root, source, OWN_TYPE, &ours));
    if (ours != NULL)
        TRY(json_get_bool(ours, source, "bias", &config.bias));
    config.dropout = (float)dropout;
    unknown_report(root, source, known);
    *out = config;
    return GT_OK;
}

/* ---- Llama's family ---- */

static const struct class_row {
    const char *type, *name;
    bool qkv_bias;
    enum qk_norm_kind qk_norm;
    int32_t n_kv_head, head_dim; /* where the fields are absent; 0: from the other sizes */
    enum { WINDOW_NEVER, WINDOW_ALWAYS, WINDOW_ON_REQUEST } window;
} classes[] = {
    {"llama", "LlamaForCausalLM", false, QK_NORM_NONE, 0, 0, WINDOW_NEVER},
    {"mistral", "MistralForCausalLM", false, QK_NORM_NONE, 8, 0, WINDOW_ALWAYS},
    {"qwen2", "Qwen2ForCausalLM", true, QK_NORM_NONE, 32, 0, WINDOW_ON_REQUEST},
    {"qwen3", "Qwen3ForCausalLM", false, QK_NORM_HEAD, 32, 128, WINDOW_ON_REQUEST},
    {OWN_TYPE, NULL, false, QK_NORM_NONE, 0, 0, WINDOW_NEVER},
};

static bool is_own(const struct class_row *row)
{
    return row->name == NULL;
}

/* Returns the first class that computes what the model does.  If no class does, returns the last row. */
static const struct class_row *class_of(const struct model_config *config)
{
    const struct class_row *row = classes;
    const bool shape = config->norm == NORM_RMSNORM && config->position == POSITION_ROPE && config->mlp == MLP_SWIGLU &&
                       !config->embed_norm;
    for (; !is_own(row); row++) {
        /* Only Llama's has biases elsewhere: attention_bias and mlp_bias. */
        const bool biases = config->bias ? row == classes : config->qkv_bias == row->qkv_bias;
        if (shape && biases && config->qk_norm == row->qk_norm)
            break;
    }
    return row;
}

const char *hf_config_type(const struct model_config *config)
{
    return model_is_gpt2(config) ? "gpt2" : class_of(config)->type;
}

const char *hf_config_lacks(const struct model_config *config)
{
    if (model_is_gpt2(config) || !is_own(class_of(config)))
        return NULL;
    if (config->norm == NORM_LAYERNORM)
        return "norm='layernorm'";
    if (config->position == POSITION_LEARNED)
        return "position='learned'";
    if (config->mlp == MLP_GELU)
        return "mlp='gelu'";
    if (config->embed_norm)
        return "embed_norm=True";
    return config->qk_norm == QK_NORM_FULL ? "qk_norm='full'" : "qk_norm='head' with bias or qkv_bias";
}

/* ---- writing the classes of Llama's family ---- */

static json_t *scaling_make(const struct rope_config *rope)
{
    if (rope->scaling == ROPE_SCALING_NONE)
        return json_null();
    if (rope->scaling == ROPE_SCALING_LINEAR)
        return json_pack("{s:s, s:f}", "rope_type", "linear", "factor", rope->factor);
    return json_pack("{s:s, s:f, s:f, s:f, s:i}", "rope_type", "llama3", "factor", rope->factor, "low_freq_factor",
                     rope->low_freq_factor, "high_freq_factor", rope->high_freq_factor,
                     "original_max_position_embeddings", rope->original_context);
}

/* Adds what Llama's fields do not say. */
static int own_add(json_t *root, const struct model_config *config, bool own)
{
    json_t *object = json_pack("{s:f}", "dropout", shortest_double(config->dropout));
    if (own && object != NULL)
        json_object_update_new(
            object, json_pack("{s:s, s:s, s:s, s:s, s:b, s:b, s:b, s:s}", "norm", model_norm_words[config->norm],
                              "position", model_position_words[config->position], "mlp", model_mlp_words[config->mlp],
                              "qk_norm", model_qk_norm_words[config->qk_norm], "qkv_bias", (int)config->qkv_bias,
                              "bias", (int)config->bias, "embed_norm", (int)config->embed_norm, "gelu",
                              model_gelu_words[config->gelu]));
    return json_object_set_new(root, OWN_TYPE, object);
}

static json_t *llama_make(const struct model_config *config, int32_t bos_token, int32_t eos_token)
{
    const struct class_row *row = class_of(config);
    const int32_t positions = model_positions(config);
    json_t *root =
        json_pack("{s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:s, s:f, s:f, s:o, s:b, s:o, s:o, s:f, s:s}",
                  "model_type", row->type, "vocab_size", config->vocab_size, "max_position_embeddings", positions,
                  "hidden_size", config->n_embd, "intermediate_size", model_inner_width(config), "num_hidden_layers",
                  config->n_layer, "num_attention_heads", config->n_head, "num_key_value_heads", config->n_kv_head,
                  "head_dim", model_head_dim(config), "hidden_act", "silu", "rms_norm_eps", config->norm_epsilon,
                  "rope_theta", config->rope.theta, "rope_scaling", scaling_make(&config->rope), "tie_word_embeddings",
                  (int)!config->untied, "bos_token_id", token_json(bos_token), "eos_token_id", token_json(eos_token),
                  "attention_dropout", 0.0, "torch_dtype", "float32");
    int failures = own_add(root, config, is_own(row));
    if (!is_own(row))
        failures |= json_object_set_new(root, "architectures", json_pack("[s]", row->name));
    if (row == classes)
        failures |= json_object_update_new(
            root, json_pack("{s:b, s:b}", "attention_bias", (int)config->bias, "mlp_bias", (int)config->bias));
    return json_whole(root, failures);
}

/* ---- reading them ---- */

/* Refuses fields of other models that would change the mathematics, unless they have no effect. */
static enum gt_status foreign_check(const json_t *root, const char *source)
{
    static const struct {
        const char *name;
        double neutral;
    } fields[] = {{"final_logit_softcapping", 0.0}, {"attn_logit_softcapping", 0.0},
                  {"num_local_experts", 0.0},       {"num_experts", 0.0},
                  {"quantization_config", 0.0},     {"embedding_multiplier", 1.0},
                  {"residual_multiplier", 1.0},     {"attention_multiplier", 0.0},
                  {"logits_scaling", 1.0},          {"query_pre_attn_scalar", 0.0}};
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        const json_t *value = json_object_get(root, fields[i].name);
        if (value != NULL && !json_is_null(value) &&
            (!json_is_number(value) || json_number_value(value) != fields[i].neutral))
            return FAIL(GT_UNSUPPORTED, "%s: field \"%s\": %s is not supported", source, fields[i].name,
                        JSON_SHORT_TEXT(value));
    }
    return GT_OK;
}

/* Only rotation of whole heads is supported. */
static enum gt_status share_check(const json_t *object, const char *source)
{
    double share = 1.0;
    TRY(hf_real_field(object, source, "partial_rotary_factor", 0.0, 1e9, &share));
    if (share == 1.0)
        return GT_OK;
    return FAIL(GT_UNSUPPORTED, "%s: field \"partial_rotary_factor\": %g is not supported; only 1 is", source, share);
}

/* Layers without rotary positions are refused, and so are other kinds of attention than the class has.  *out_windows is
 * whether layer_types has a layer with a window. */
static enum gt_status layers_check(const json_t *root, const char *source, const struct class_row *row,
                                   bool *out_windows)
{
    const json_t *types = json_object_get(root, "layer_types"), *ropes = json_object_get(root, "no_rope_layers"),
                 *value;
    size_t i;
    *out_windows = false;
    json_array_foreach(types, i, value)
    {
        const char *type = json_string_value(value) != NULL ? json_string_value(value) : "?";
        const bool windows = row->window != WINDOW_NEVER && strcmp(type, "sliding_attention") == 0;
        if (!windows && strcmp(type, "full_attention") != 0)
            return refuse_text(source, "layer_types", type, "only full_attention is");
        *out_windows = *out_windows || windows;
    }
    json_array_foreach(ropes, i, value)
    {
        if (json_integer_value(value) != 1)
            return FAIL(GT_UNSUPPORTED,
                        "%s: field \"no_rope_layers\": layers without rotary positions are not supported", source);
    }
    return GT_OK;
}

/* Sets *window to the length of the attention's window, or to 0 if no layer has one.  In the classes that must be told
 * to use it, layer_types names the layers that do, or else all from number max_window_layers on. */
static enum gt_status window_parse(const json_t *root, const char *source, const struct class_row *row, int32_t n_layer,
                                   int32_t *window)
{
    const json_t *given = json_object_get(root, "sliding_window");
    bool used = row->window == WINDOW_ALWAYS, listed;
    int64_t length = WINDOW_DEFAULT, first = WINDOW_LAYERS_DEFAULT;
    *window = 0;
    TRY(layers_check(root, source, row, &listed));
    if (row->window == WINDOW_ON_REQUEST) {
        TRY(OPTIONAL(json_get_bool, root, source, "use_sliding_window", &used));
        if (has(root, "max_window_layers"))
            TRY(json_get_int(root, source, "max_window_layers", 0, INT32_MAX, &first));
        used = used && (has(root, "layer_types") ? listed : first < n_layer);
    }
    if (!used || json_is_null(given))
        return GT_OK;
    if (given != NULL)
        TRY(json_get_int(root, source, "sliding_window", 1, INT32_MAX, &length));
    *window = (int32_t)length;
    return GT_OK;
}

static enum gt_status scaling_parse(const json_t *object, const char *source, struct rope_config *rope)
{
    const char *type = "default";
    double context = 0.0;
    TRY(OPTIONAL(json_get_string, object, source, has(object, "rope_type") ? "rope_type" : "type", &type));
    if (strcmp(type, "default") == 0)
        return GT_OK;
    rope->scaling = strcmp(type, "linear") == 0 ? ROPE_SCALING_LINEAR : ROPE_SCALING_LLAMA3;
    if (rope->scaling == ROPE_SCALING_LLAMA3 && strcmp(type, "llama3") != 0)
        return refuse_text(source, "rope_type", type, "default, linear and llama3 are");
    TRY(hf_real_field(object, source, "factor", 1.0, 1e9, &rope->factor));
    TRY(hf_real_field(object, source, "low_freq_factor", 1e-9, 1e9, &rope->low_freq_factor));
    TRY(hf_real_field(object, source, "high_freq_factor", 1e-9, 1e9, &rope->high_freq_factor));
    TRY(hf_real_field(object, source, "original_max_position_embeddings", 1.0, (double)HF_SIZE_MAX, &context));
    rope->original_context = (int32_t)context;
    char text[ROPE_SCALING_TEXT_MAX];
    struct rope_config again;
    if (rope_scaling_read(rope_scaling_text(text, rope), &again))
        return GT_OK;
    return FAIL(GT_DATA, "%s: field \"rope_scaling\": a number is missing or impossible: %s", source, text);
}

static enum gt_status rope_parse(const json_t *root, const char *source, struct rope_config *rope)
{
    static const char *const names[] = {"rope_scaling", "rope_parameters"};
    TRY(hf_real_field(root, source, "rope_theta", 1.0, 1e12, &rope->theta));
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const json_t *object;
        if (!has(root, names[i]))
            continue;
        TRY(json_get_object(root, source, names[i], &object));
        TRY(share_check(object, source));
        TRY(hf_real_field(object, source, "rope_theta", 1.0, 1e12, &rope->theta));
        TRY(scaling_parse(object, source, rope));
    }
    return GT_OK;
}

static enum gt_status llama_sizes_parse(const json_t *root, const char *source, const struct class_row *row,
                                        struct model_config *config)
{
    const bool no_kv_heads = json_object_get(root, "num_key_value_heads") == NULL && row->n_kv_head > 0;
    TRY(hf_size_field(root, source, "vocab_size", &config->vocab_size));
    TRY(hf_size_field(root, source, "max_position_embeddings", &config->block_size));
    TRY(hf_size_field(root, source, "hidden_size", &config->n_embd));
    TRY(hf_size_field(root, source, "intermediate_size", &config->n_inner));
    TRY(hf_size_field(root, source, "num_hidden_layers", &config->n_layer));
    TRY(hf_size_field(root, source, "num_attention_heads", &config->n_head));
    config->n_kv_head = no_kv_heads ? row->n_kv_head : config->n_head;
    config->head_dim = row->head_dim;
    config->padded_vocab_size = config->vocab_size;
    TRY(OPTIONAL(hf_size_field, root, source, "num_key_value_heads", &config->n_kv_head));
    TRY(OPTIONAL(hf_size_field, root, source, "head_dim", &config->head_dim));
    if (config->n_head % config->n_kv_head != 0)
        return FAIL(GT_DATA, "%s: field \"num_key_value_heads\": %d does not divide num_attention_heads, %d", source,
                    config->n_kv_head, config->n_head);
    if (config->head_dim > 0 || config->n_embd % config->n_head == 0)
        return GT_OK;
    return FAIL(GT_DATA,
                "%s: field \"num_attention_heads\": %d does not divide hidden_size, %d, and there is no head_dim",
                source, config->n_head, config->n_embd);
}

/* Llama's attention_bias is of all four projections, mlp_bias of the MLP's; here they come together. */
static enum gt_status biases_parse(const json_t *root, const char *source, struct model_config *config)
{
    bool mlp = false;
    TRY(OPTIONAL(json_get_bool, root, source, "attention_bias", &config->bias));
    TRY(OPTIONAL(json_get_bool, root, source, "mlp_bias", &mlp));
    if (mlp == config->bias)
        return GT_OK;
    return FAIL(GT_UNSUPPORTED,
                "%s: field \"attention_bias\": %s is not supported with \"mlp_bias\": %s; both must be equal", source,
                config->bias ? "true" : "false", mlp ? "true" : "false");
}

/* Sets *out to the index of the field's word. */
static enum gt_status word_parse(const json_t *object, const char *source, const char *name, const char *const *words,
                                 int *out)
{
    const char *word;
    TRY(json_get_string(object, source, name, &word));
    for (*out = 0; words[*out] != NULL; ++*out)
        if (strcmp(words[*out], word) == 0)
            return GT_OK;
    return refuse_text(source, name, word, "this release does not know it");
}

static enum gt_status own_parse(const json_t *object, const char *source, struct model_config *config)
{
    int norm, position, mlp, gelu, qk_norm;
    TRY(word_parse(object, source, "norm", model_norm_words, &norm));
    TRY(word_parse(object, source, "position", model_position_words, &position));
    TRY(word_parse(object, source, "mlp", model_mlp_words, &mlp));
    TRY(word_parse(object, source, "gelu", model_gelu_words, &gelu));
    TRY(word_parse(object, source, "qk_norm", model_qk_norm_words, &qk_norm));
    TRY(json_get_bool(object, source, "bias", &config->bias));
    TRY(json_get_bool(object, source, "qkv_bias", &config->qkv_bias));
    TRY(OPTIONAL(json_get_bool, object, source, "embed_norm", &config->embed_norm));
    config->norm = (enum norm_kind)norm;
    config->position = (enum position_kind)position;
    config->mlp = (enum mlp_kind)mlp;
    config->gelu = (enum gelu_kind)gelu;
    config->qk_norm = (enum qk_norm_kind)qk_norm;
    return GT_OK;
}

static enum gt_status class_find(const char *source, const char *type, const struct class_row **out)
{
    for (size_t i = 0; i < sizeof classes / sizeof classes[0]; i++) {
        *out = &classes[i];
        if (strcmp(classes[i].type, type) == 0)
            return GT_OK;
    }
    return refuse_text(source, "model_type", type, "gpt2, llama, mistral, qwen2 and qwen3 are");
}

static enum gt_status llama_parse(const json_t *root, const char *source, const char *type, struct model_config *out,
                                  int32_t *out_window)
{
    static const char *const known[] = {"max_position_embeddings",
                                        "hidden_size",
                                        "intermediate_size",
                                        "num_hidden_layers",
                                        "num_attention_heads",
                                        "num_key_value_heads",
                                        "head_dim",
                                        "rms_norm_eps",
                                        "hidden_act",
                                        "attention_bias",
                                        "mlp_bias",
                                        "attention_dropout",
                                        "rope_theta",
                                        "rope_scaling",
                                        "rope_parameters",
                                        "partial_rotary_factor",
                                        "layer_types",
                                        "no_rope_layers",
                                        "sliding_window",
                                        "use_sliding_window",
                                        "max_window_layers",
                                        "embedding_multiplier",
                                        "residual_multiplier",
                                        "logits_scaling",
                                        NULL};
    const struct class_row *row;
    const char *activation = "silu";
    const json_t *ours = NULL;
    double dropout = 0.0;
    int32_t window;
    TRY(class_find(source, type, &row));
    struct model_config config = {.norm = NORM_RMSNORM,
                                  .position = POSITION_ROPE,
                                  .mlp = MLP_SWIGLU,
                                  .qk_norm = row->qk_norm,
                                  .qkv_bias = row->qkv_bias,
                                  .norm_epsilon = 1e-6,
                                  .rope = {.theta = 1e4}};
    TRY(llama_sizes_parse(root, source, row, &config));
    TRY(foreign_check(root, source));
    TRY(share_check(root, source));
    TRY(hf_real_field(root, source, "rms_norm_eps", 1e-12, 1.0, &config.norm_epsilon));
    TRY(OPTIONAL(json_get_string, root, source, "hidden_act", &activation));
    if (strcmp(activation, "silu") != 0 && strcmp(activation, "swish") != 0)
        return refuse_text(source, "hidden_act", activation, "only silu is");
    if (row == classes)
        TRY(biases_parse(root, source, &config));
    else if (!is_own(row))
        TRY(flag_expect(root, source, "attention_bias", false));
    TRY(rope_parse(root, source, &config.rope));
    TRY(window_parse(root, source, row, config.n_layer, &window));
    *out_window = window > 0 && window < config.block_size ? window : 0;
    config.block_size = *out_window > 0 ? window : config.block_size;
    if (is_own(row) || has(root, OWN_TYPE))
        TRY(json_get_object(root, source, OWN_TYPE, &ours));
    if (is_own(row))
        TRY(own_parse(ours, source, &config));
    TRY(hf_real_field(ours != NULL ? ours : root, source, ours != NULL ? "dropout" : "attention_dropout", 0.0, 1.0,
                      &dropout));
    config.dropout = (float)dropout;
    config.max_positions = config.position == POSITION_ROPE ? config.block_size : 0;
    unknown_report(root, source, known);
    *out = config;
    return GT_OK;
}

/* ---- any model ---- */

enum gt_status hf_config_make(const struct model_config *config, int32_t bos_token, int32_t eos_token, json_t **out)
{
    *out = (model_is_gpt2(config) ? gpt2_make : llama_make)(config, bos_token, eos_token);
    return *out != NULL ? GT_OK : FAIL(GT_NO_MEMORY, "out of memory: config.json could not be made");
}

static enum gt_status rest_parse(const json_t *root, const char *source, bool tied, struct hf_config_rest *rest)
{
    rest->tied = tied;
    rest->window = 0;
    TRY(OPTIONAL(json_get_bool, root, source, "tie_word_embeddings", &rest->tied));
    TRY(token_field(root, source, "bos_token_id", &rest->bos_token));
    return token_field(root, source, "eos_token_id", &rest->eos_token);
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
        TRY(llama_parse(root, source, type, &config, &rest.window));
        config.untied = !rest.tied;
    }
    *out = config;
    *out_rest = rest;
    return GT_OK;
}
