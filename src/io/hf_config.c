/* config.json: reads and writes a model's shape in the terms of transformers' classes.
 *
 * The tables shape.def and archs.def say which fields a class has.  This file handles what the
 * tables cannot express: contexts, dropout, rope's objects, windows, biases, constants.  Each field
 * is checked for type and range, and then for a value that this program supports: a field that
 * would change the mathematics is refused by name and value, never ignored.  A value that is absent
 * or null leaves the default, as in transformers.  Fields that only concern generation or training
 * elsewhere (initializer_range, summary_*, use_cache) are ignored; one warning names those that are
 * set but unknown.  The trainer calls model_config_check() on every configuration, which checks the
 * shapes again.  A model that no class can express has the type "gpt_train"; the object "gpt_train"
 * has the properties that Llama's fields cannot express.
 */
#include "io/hf_config.h"

#include <math.h>

#include "base/size.h"
#include "io/foreign_models.h"
#include "io/known_models.h"
#include "model/parameters.h"

#define UNKNOWN_TEXT_MAX 512
#define WORDS_TEXT_MAX 128
#define WINDOW_DEFAULT 4096      /* sliding_window, of all classes that have it */
#define PHI3_CONTEXT 4096        /* original_max_position_embeddings */
#define WINDOW_LAYERS_DEFAULT 28 /* max_window_layers */
#define WINDOW_PATTERN_DEFAULT 6 /* sliding_window_pattern */
#define GEMMA3_POSITIONS 131072  /* max_position_embeddings */
#define PART_TYPE "gemma3"       /* a model whose text_config is supported, like the next one */
#define PART_TYPE_QWEN "qwen3_5"
/* Far beyond any model, and small enough that a product of two fits 64 bits. */
#define HF_SIZE_MAX 16777216
#define GPT_TRAIN_OBJECT "gpt_train"

/* ---- fields ---- */
/* Returns the double with the fewest digits that rounds to `value`: 0.1 instead of
 * 0.100000001490116. */
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
#define OPTIONAL(get, root, source, name, out) \
    (has(root, name) ? get(root, source, name, out) : GT_OK)

static enum gt_status refuse_text(const char *source, const char *name, const char *value,
                                  const char *supported)
{
    return FAIL(GT_UNSUPPORTED, "%s: field \"%s\": \"%.64s\" is not supported; %s", source, name,
                value, supported);
}

/* Refuses a word that is not in `list`, whose items each follow ", ". */
static enum gt_status refuse_word(const char *source, const char *name, const char *value,
                                  const char *list, const char *more)
{
    const char *last = strrchr(list, ',');
    const int length = last != NULL ? (int)(last - list) : 0;
    return refuse_text(source, name, value,
                       TEXT(2 * WORDS_TEXT_MAX, "%.*s%s%s are%s", length, list,
                            last != NULL ? " and " : "", last != NULL ? last + 2 : list, more));
}

/* Checks a flag that must have the value that this program supports, if it is present. */
static enum gt_status flag_expect(const json_t *root, const char *source, const char *name,
                                  bool expected)
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

enum gt_status hf_real_field(const json_t *root, const char *source, const char *name, double min,
                             double max, double *value)
{
    double number;
    if (!has(root, name))
        return GT_OK;
    TRY(json_get_real(root, source, name, &number));
    if (!(number >= min && number < max))
        return FAIL(GT_DATA, "%s: field \"%s\": %g is not in [%g, %g)", source, name, number, min,
                    max);
    *value = number;
    return GT_OK;
}

/* Reads the id of a token.  The field may be an id or a list, whose first id is used.  *out is -1
 * if it is absent. */
static enum gt_status token_field(const json_t *root, const char *source, const char *name,
                                  int32_t *out)
{
    const json_t *value = json_object_get(root, name);
    const json_t *token = json_array_size(value) > 0 ? json_array_get(value, 0) : value;
    *out = -1;
    if (token == NULL || json_is_null(token))
        return GT_OK;
    if (!json_is_integer(token) || json_integer_value(token) < 0 ||
        json_integer_value(token) > INT32_MAX)
        return FAIL(GT_DATA, "%s: field \"%s\": expected a token's id, or a list of them", source,
                    name);
    *out = (int32_t)json_integer_value(token);
    return GT_OK;
}

/* ---- the fields of the tables ---- */

json_t *hf_property_json(const struct shape *shape, enum shape_property property)
{
    const struct shape_row *row = shape_row_get(property);
    const double value = shape_get(shape, property);
    switch (row->type) {
    case SHAPE_TYPE_INT:
        return json_integer((json_int_t)value);
    case SHAPE_TYPE_REAL:
        return json_real(value);
    case SHAPE_TYPE_BOOL:
        return json_boolean((value != 0.0) != row->inverse);
    default:
        return json_string(row->words[(int)value]);
    }
}

/* The order in which releases have written the fields; those of later properties follow. */
static const char *const orders[ARCH_FAMILIES][24] = {
    [FAMILY_GPT2] = {"architectures",
                     "model_type",
                     "vocab_size",
                     "n_positions",
                     "n_ctx",
                     "n_embd",
                     "n_layer",
                     "n_head",
                     "n_inner",
                     "activation_function",
                     "layer_norm_epsilon",
                     "attn_pdrop",
                     "embd_pdrop",
                     "resid_pdrop",
                     "scale_attn_weights",
                     "scale_attn_by_inverse_layer_idx",
                     "reorder_and_upcast_attn",
                     "tie_word_embeddings",
                     "bos_token_id",
                     "eos_token_id",
                     "torch_dtype",
                     GPT_TRAIN_OBJECT},
    [FAMILY_LLAMA] = {"model_type",
                      "vocab_size",
                      "max_position_embeddings",
                      "hidden_size",
                      "intermediate_size",
                      "num_hidden_layers",
                      "num_attention_heads",
                      "num_key_value_heads",
                      "head_dim",
                      "hidden_act",
                      "rms_norm_eps",
                      "rope_theta",
                      "rope_scaling",
                      "tie_word_embeddings",
                      "bos_token_id",
                      "eos_token_id",
                      "attention_dropout",
                      "torch_dtype",
                      GPT_TRAIN_OBJECT,
                      "architectures",
                      "attention_bias",
                      "mlp_bias"},
};
static const char *const private_order[] = {"dropout",  "norm", "position",   "mlp",  "qk_norm",
                                            "qkv_bias", "bias", "embed_norm", "gelu", NULL};

/* Returns the members of `root` sorted by `order`, and releases `root`. */
static json_t *ordered(json_t *root, const char *const *order)
{
    json_t *out = json_object();
    int failures = root == NULL;
    for (; *order != NULL; order++)
        if (json_object_get(root, *order) != NULL)
            failures |= json_object_set(out, *order, json_object_get(root, *order));
    failures |= json_object_update_missing(out, root);
    json_decref(root);
    return json_whole(out, failures);
}

/* Returns true if the fields of Llama's family cannot express every value of a property, so that
 * our object must. */
static bool is_private_property(enum shape_property property)
{
    const struct shape_row *row = shape_row_get(property);
    bool said = arch_field(arch_get(ARCH_gpt_train), property) != NULL;
    for (int i = 0; said && row->words != NULL && row->words[i] != NULL; i++)
        said = row->hf_words[i] != NULL;
    return !said;
}

/* Returns a field's word for a choice, or, if it has none, for another choice. */
static json_t *field_word(const struct shape_row *row, int choice)
{
    int i = choice;
    while (row->hf_words[i] == NULL)
        i = (i + 1) % SHAPE_WORDS_MAX;
    return json_stringn(row->hf_words[i], strcspn(row->hf_words[i], "|"));
}

/* Adds the properties that have fields in a class. */
static int fields_add(json_t *root, const struct shape *shape, const struct arch *arch)
{
    int failures = 0;
    for (int p = 0; p < SHAPE_PROPERTIES; p++) {
        const enum shape_property property = (enum shape_property)p;
        const struct shape_row *row = shape_row_get(property);
        if (arch_field(arch, property) != NULL)
            failures |= json_object_set_new(root, arch_field(arch, property),
                                            row->type == SHAPE_TYPE_WORD
                                                ? field_word(row, (int)shape_get(shape, property))
                                                : hf_property_json(shape, property));
    }
    return failures;
}

/* Adds the object with the properties that the fields cannot express. */
static int private_add(json_t *root, const struct model_config *config, const struct arch *arch)
{
    json_t *object = arch->family == FAMILY_GPT2
                         ? json_pack("{s:b}", "bias", (int)config->bias)
                         : json_pack("{s:f}", "dropout", shortest_double(config->dropout));
    int failures = 0;
    for (int p = 0; p < SHAPE_PROPERTIES && arch->class_name == NULL; p++)
        if (is_private_property((enum shape_property)p))
            failures |=
                json_object_set_new(object, shape_row_get((enum shape_property)p)->name,
                                    hf_property_json(&config->shape, (enum shape_property)p));
    return failures | json_object_set_new(root, GPT_TRAIN_OBJECT, ordered(object, private_order));
}

/* Sets *out to the choice of a word, which stands between '|' in the field's words. */
static enum gt_status choice_parse(const json_t *root, const char *source,
                                   const struct shape_row *row, const char *field, int *out)
{
    char list[WORDS_TEXT_MAX] = "";
    const char *text, *word;
    if (!has(root, field))
        return GT_OK;
    TRY(json_get_string(root, source, field, &text));
    for (int i = 0; i < SHAPE_WORDS_MAX; i++)
        for (word = row->hf_words[i]; word != NULL;
             word = strchr(word, '|') != NULL ? strchr(word, '|') + 1 : NULL) {
            const int length = (int)strcspn(word, "|");
            const size_t used = strlen(list);
            if (strncmp(text, word, (size_t)length) == 0 && text[length] == '\0') {
                *out = i;
                return GT_OK;
            }
            (void)snprintf(list + used, sizeof list - used, "%s%.*s", used > 0 ? ", " : "", length,
                           word);
        }
    return refuse_word(source, field, text, list, "");
}

/* Reads the field of a property. */
static enum gt_status field_parse(const json_t *root, const char *source, const struct arch *arch,
                                  enum shape_property property, struct shape *shape)
{
    const struct shape_row *row = shape_row_get(property);
    const char *field = arch_field(arch, property);
    double value = shape_get(&arch->silent, property);
    bool flag = (value != 0.0) != row->inverse;
    int32_t size = (int32_t)value;
    const bool must = !row->optional && size == 0;
    int choice = (int)value;
    switch (row->type) {
    case SHAPE_TYPE_INT:
        if (must || has(root, field))
            TRY(hf_size_field(root, source, field, &size));
        value = size;
        break;
    case SHAPE_TYPE_REAL:
        TRY(hf_real_field(root, source, field, row->least, row->most, &value));
        break;
    case SHAPE_TYPE_BOOL:
        TRY(OPTIONAL(json_get_bool, root, source, field, &flag));
        value = flag != row->inverse;
        break;
    case SHAPE_TYPE_WORD:
        TRY(choice_parse(root, source, row, field, &choice));
        value = choice;
    }
    shape_set(shape, property, value);
    return GT_OK;
}

/* Reads the shape from the fields of a class. */
static enum gt_status fields_parse(const json_t *root, const char *source, const struct arch *arch,
                                   struct shape *out)
{
    *out = arch->shape;
    out->bias = arch->silent.bias;
    for (int p = 0; p < SHAPE_PROPERTIES; p++)
        if (arch_field(arch, (enum shape_property)p) != NULL)
            TRY(field_parse(root, source, arch, (enum shape_property)p, out));
    return GT_OK;
}

/* Reads a property in our object.  Sets *out to the index of a word. */
static enum gt_status word_parse(const json_t *object, const char *source,
                                 const struct shape_row *row, double *out)
{
    const char *word;
    TRY(json_get_string(object, source, row->name, &word));
    for (int i = 0; row->words[i] != NULL; i++)
        if (strcmp(row->words[i], word) == 0) {
            *out = i;
            return GT_OK;
        }
    return refuse_text(source, row->name, word, "this release does not know it");
}

/* Reads the properties of a model of ours that Llama's fields cannot express. */
static enum gt_status private_parse(const json_t *object, const char *source, struct shape *shape)
{
    for (int p = 0; p < SHAPE_PROPERTIES; p++) {
        const struct shape_row *row = shape_row_get((enum shape_property)p);
        double value;
        int64_t integer;
        bool flag;
        if (!is_private_property((enum shape_property)p) ||
            (row->optional && !has(object, row->name)))
            continue;
        if (row->type == SHAPE_TYPE_WORD) {
            TRY(word_parse(object, source, row, &value));
        } else if (row->type == SHAPE_TYPE_BOOL) {
            TRY(json_get_bool(object, source, row->name, &flag));
            value = flag != row->inverse;
        } else if (row->type == SHAPE_TYPE_INT) {
            TRY(json_get_int(object, source, row->name, 0, HF_SIZE_MAX, &integer));
            value = (double)integer;
        } else
            TRY(json_get_real(object, source, row->name, &value));
        shape_set(shape, (enum shape_property)p, value);
    }
    return GT_OK;
}

/* ---- GPT2Config ---- */

static int gpt2_add(json_t *root, const struct model_config *config)
{
    const double dropout = shortest_double(config->dropout);
    return json_object_update_new(
        root, json_pack("{s:i, s:i, s:n, s:f, s:f, s:f, s:b, s:b, s:b, s:b}", "n_positions",
                        config->block_size, "n_ctx", config->block_size, "n_inner", "attn_pdrop",
                        dropout, "embd_pdrop", dropout, "resid_pdrop", dropout,
                        "scale_attn_weights", 1, "scale_attn_by_inverse_layer_idx", 0,
                        "reorder_and_upcast_attn", 0, "tie_word_embeddings", 1));
}

/* Checks the sizes that a GPT-2 has no fields for, or whose fields must have one value. */
static enum gt_status sizes_check(const json_t *root, const char *source,
                                  struct model_config *config)
{
    TRY(hf_size_field(root, source, "n_positions", &config->block_size));
    config->n_kv_head = config->n_head;
    if (config->n_embd % config->n_head != 0)
        return FAIL(GT_DATA, "%s: field \"n_head\": %d does not divide n_embd, %d", source,
                    config->n_head, config->n_embd);
    if (!has(root, "n_inner"))
        return GT_OK;
    int64_t inner;
    TRY(json_get_int(root, source, "n_inner", 1, (int64_t)4 * HF_SIZE_MAX, &inner));
    if (inner == (int64_t)4 * config->n_embd)
        return GT_OK;
    return FAIL(GT_UNSUPPORTED,
                "%s: field \"n_inner\": %lld is not supported; only null and 4 n_embd = %lld are",
                source, (long long)inner, (long long)config->n_embd * 4);
}

static enum gt_status gpt2_parse(const json_t *root, const char *source,
                                 struct model_config *config)
{
    double dropout = 0.1;
    const json_t *ours = NULL;
    TRY(flag_expect(root, source, "scale_attn_weights", true));
    TRY(flag_expect(root, source, "scale_attn_by_inverse_layer_idx", false));
    TRY(flag_expect(root, source, "reorder_and_upcast_attn", false));
    TRY(flag_expect(root, source, "add_cross_attention", false));
    TRY(sizes_check(root, source, config));
    TRY(hf_real_field(root, source, "resid_pdrop", 0.0, 1.0, &dropout));
    TRY(OPTIONAL(json_get_object, root, source, GPT_TRAIN_OBJECT, &ours));
    if (ours != NULL)
        TRY(json_get_bool(ours, source, "bias", &config->bias));
    config->dropout = (float)dropout;
    return GT_OK;
}

/* ---- Llama's family ---- */

/* Returns the attention factor of longrope in a file that has none. */
static double longrope_attention(double factor, int32_t original)
{
    return factor <= 1.0 ? 1.0 : sqrt(1.0 + log(factor) / log(original));
}

static json_t *divisors_make(const struct rope_config *rope, int which)
{
    json_t *list = json_array();
    int failures = list == NULL;
    for (int i = 0; i < rope->pairs; i++)
        failures |=
            json_array_append_new(list, json_real(shortest_double(rope->divisors[which][i])));
    return json_whole(list, failures);
}

/* Phi3Config requires the original context outside the object, and older releases allow no other
 * field inside it. */
static json_t *longrope_make(const struct model_config *config, const struct arch *arch)
{
    const struct rope_config *rope = &config->rope;
    const bool beside = arch == arch_get(ARCH_phi3);
    json_t *root =
        json_pack("{s:s, s:o, s:o}", beside ? "type" : "rope_type", "longrope", "short_factor",
                  divisors_make(rope, 0), "long_factor", divisors_make(rope, 1));
    int failures = root == NULL;
    if (!beside)
        failures |= json_object_set_new(root, "original_max_position_embeddings",
                                        json_integer(rope->original_context));
    const double factor = (double)model_positions(config) / rope->original_context;
    if (rope->attention_factor != longrope_attention(factor, rope->original_context))
        failures |=
            json_object_set_new(root, "attention_factor", json_real(rope->attention_factor));
    return json_whole(root, failures);
}

static json_t *yarn_make(const struct rope_config *rope)
{
    json_t *root =
        json_pack("{s:s, s:f, s:i, s:f, s:f}", "rope_type", "yarn", "factor", rope->factor,
                  "original_max_position_embeddings", rope->original_context, "beta_fast",
                  rope->beta_fast, "beta_slow", rope->beta_slow);
    int failures = root == NULL;
    if (rope->attention_factor != rope_yarn_attention(rope->factor))
        failures |=
            json_object_set_new(root, "attention_factor", json_real(rope->attention_factor));
    if (!rope->whole_pairs)
        failures |= json_object_set_new(root, "truncate", json_false());
    return json_whole(root, failures);
}

static json_t *scaling_make(const struct model_config *config, const struct arch *arch)
{
    const struct rope_config *rope = &config->rope;
    if (rope->scaling == ROPE_SCALING_NONE)
        return json_null();
    if (rope->scaling == ROPE_SCALING_LONGROPE)
        return longrope_make(config, arch);
    if (rope->scaling == ROPE_SCALING_YARN)
        return yarn_make(rope);
    if (rope->scaling != ROPE_SCALING_LLAMA3)
        return json_pack("{s:s, s:f}", "rope_type",
                         rope->scaling == ROPE_SCALING_LINEAR ? "linear" : "dynamic", "factor",
                         rope->factor);
    return json_pack("{s:s, s:f, s:f, s:f, s:i}", "rope_type", "llama3", "factor", rope->factor,
                     "low_freq_factor", rope->low_freq_factor, "high_freq_factor",
                     rope->high_freq_factor, "original_max_position_embeddings",
                     rope->original_context);
}

/* Returns the kinds of attention of all layers, in transformers' words. */
static json_t *layer_types_make(const struct model_config *config)
{
    json_t *list = json_array();
    int failures = list == NULL;
    for (int32_t layer = 0; layer < config->n_layer; layer++)
        failures |= json_array_append_new(
            list, json_string(shape_is_linear(&config->shape, layer)    ? "linear_attention"
                              : shape_window(&config->shape, layer) > 0 ? "sliding_attention"
                                                                        : "full_attention"));
    return json_whole(list, failures);
}

/* Adds the fields of a window, if there is one. */
static int window_add(json_t *root, const struct model_config *config, const struct arch *arch)
{
    if (config->sliding_window == 0 || arch->window == WINDOW_NEVER)
        return 0;
    int failures =
        json_object_set_new(root, "sliding_window", json_integer(config->sliding_window));
    if (arch->window == WINDOW_BY_LAYER)
        failures |= json_object_update_new(
            root, json_pack("{s:i, s:o}", "sliding_window_pattern", config->sliding_window_pattern,
                            "layer_types", layer_types_make(config)));
    if (arch->window == WINDOW_ON_REQUEST)
        failures |= json_object_update_new(
            root, json_pack("{s:b, s:i, s:o}", "use_sliding_window", 1, "max_window_layers",
                            config->max_window_layers, "layer_types", layer_types_make(config)));
    return failures;
}

/* Adds the fields of Qwen3_5TextConfig that are not in the table.  One object has all of rope, with
 * the members of rope_scaling, because a separate rope_scaling would replace it. */
static int delta_add(json_t *root, const struct model_config *config)
{
    json_t *rope =
        json_pack("{s:s, s:f, s:f}", "rope_type", "default", "rope_theta", config->rope.theta,
                  "partial_rotary_factor", config->partial_rotary_factor);
    const json_t *scaling = json_object_get(root, "rope_scaling");
    int failures = rope == NULL;
    if (json_is_object(scaling))
        failures |= json_object_update(rope, (json_t *)scaling);
    failures |= json_object_set_new(root, "rope_scaling", json_null());
    return failures |
           json_object_update_new(root, json_pack("{s:o, s:i, s:b, s:o}", "layer_types",
                                                  layer_types_make(config), "linear_key_head_dim",
                                                  config->linear_value_head_dim, "attn_output_gate",
                                                  1, "rope_parameters", rope));
}

static int llama_add(json_t *root, const struct model_config *config, const struct arch *arch)
{
    int failures = json_object_update_new(
        root, json_pack("{s:i, s:o, s:f}", "max_position_embeddings",
                        /* a dynamic scaling begins at the original context */
                        config->rope.scaling == ROPE_SCALING_DYNAMIC ? config->rope.original_context
                                                                     : model_positions(config),
                        "rope_scaling", scaling_make(config, arch), "attention_dropout", 0.0));
    /* Their default may be outside the vocabulary. */
    if (arch == arch_get(ARCH_phi3) || arch == arch_get(ARCH_smollm3))
        failures |= json_object_set_new(root, "pad_token_id", json_null());
    if (config->rope.scaling == ROPE_SCALING_LONGROPE && arch == arch_get(ARCH_phi3))
        failures |= json_object_set_new(root, "original_max_position_embeddings",
                                        json_integer(config->rope.original_context));
    if (arch->biases == BIASES_FIELDS)
        failures |= json_object_update_new(root, json_pack("{s:b, s:b}", "attention_bias",
                                                           (int)config->bias, "mlp_bias",
                                                           (int)config->bias));
    if (arch == arch_get(ARCH_qwen3_5))
        failures |= delta_add(root, config);
    return failures | window_add(root, config, arch);
}

static bool has_field(const struct arch *arch, const char *name)
{
    for (int p = 0; p < SHAPE_PROPERTIES; p++) {
        const char *field = arch_field(arch, (enum shape_property)p);
        if (field != NULL && strcmp(field, name) == 0)
            return true;
    }
    return false;
}

/* Refuses fields of other models that would change the mathematics, unless they have no effect. */
static enum gt_status foreign_check(const json_t *root, const char *source, const struct arch *arch)
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
        const json_t *value =
            has_field(arch, fields[i].name) ? NULL : json_object_get(root, fields[i].name);
        if (json_is_object(value) && strcmp(fields[i].name, "quantization_config") == 0)
            return FAIL(
                GT_UNSUPPORTED,
                "%s: field \"%s\": quantized weights are not supported; use the model in 16 bits that they were "
                "made of, for which the plan finds room",
                source, fields[i].name);
        if (value != NULL && !json_is_null(value) &&
            (!json_is_number(value) || json_number_value(value) != fields[i].neutral))
            return FAIL(GT_UNSUPPORTED, "%s: field \"%s\": %s is not supported", source,
                        fields[i].name, JSON_SHORT_TEXT(value));
    }
    return GT_OK;
}

/* Reads the share of a head that rotates, which is 1 in most classes. */
static enum gt_status share_parse(const json_t *object, const char *source, const struct arch *arch,
                                  double *out)
{
    double share = 1.0;
    if (arch_field(arch, SHAPE_partial_rotary_factor) != NULL)
        return hf_real_field(object, source, "partial_rotary_factor", 1e-9, 2.0, out);
    TRY(hf_real_field(object, source, "partial_rotary_factor", 0.0, 1e9, &share));
    if (share == 1.0)
        return GT_OK;
    return FAIL(GT_UNSUPPORTED,
                "%s: field \"partial_rotary_factor\": %g is not supported; only 1 is", source,
                share);
}

/* Refuses a list of layers with rotary positions other than the class's, in which every n-th layer
 * has none. */
static enum gt_status rope_layers_check(const json_t *root, const char *source,
                                        const struct shape *shape)
{
    const json_t *list = json_object_get(root, "no_rope_layers"), *value;
    size_t i;
    json_array_foreach(list, i, value)
    {
        const bool rotates = shape_rotates(shape, (int32_t)i);
        if (i < (size_t)shape->n_layer && json_integer_value(value) != rotates)
            return FAIL(
                GT_UNSUPPORTED,
                "%s: field \"no_rope_layers\": entry %zu is %s; only %d is supported, by model_type and "
                "no_rope_layer_interval",
                source, i, JSON_SHORT_TEXT(value), (int)rotates);
    }
    if (shape->no_rope_layer_interval == 0)
        return GT_OK;
    return flag_expect(root, source, "use_sliding_window", false);
}

/* Refuses kinds of attention that the class does not have. */
static enum gt_status layers_check(const json_t *root, const char *source, const struct arch *arch)
{
    const json_t *types = json_object_get(root, "layer_types"), *value;
    size_t i;
    json_array_foreach(types, i, value)
    {
        const char *type = json_string_value(value) != NULL ? json_string_value(value) : "?";
        const bool windows = arch->window != WINDOW_NEVER && strcmp(type, "sliding_attention") == 0;
        if (arch == arch_get(ARCH_qwen3_5) && strcmp(type, "linear_attention") == 0)
            continue;
        if (!windows && strcmp(type, "full_attention") != 0)
            return refuse_text(source, "layer_types", type, "only full_attention is");
    }
    return GT_OK;
}

static bool layer_has_window(const json_t *types, int32_t layer)
{
    const char *type = json_string_value(json_array_get(types, (size_t)layer));
    return type != NULL && strcmp(type, "sliding_attention") == 0;
}

/* Returns the first layer, from 0 on, that has a window by layer_types, or has none if `window` is
 * false; n_layer if there is no such layer. */
static int32_t layer_first(const json_t *types, const struct model_config *config, bool window)
{
    int32_t layer = 0;
    while (layer < config->n_layer && layer_has_window(types, layer) != window)
        layer++;
    return layer;
}

/* Returns true if the layers of the shape that have a window are those of layer_types. */
static bool layers_agree(const json_t *types, const struct model_config *config)
{
    for (int32_t layer = 0; layer < config->n_layer; layer++)
        if (layer_has_window(types, layer) != (shape_window(&config->shape, layer) > 0))
            return false;
    return true;
}

/* Sets which layers have the window: all but every n-th. */
static enum gt_status pattern_parse(const json_t *root, const char *source,
                                    struct model_config *config)
{
    int64_t pattern = WINDOW_PATTERN_DEFAULT;
    if (has(root, "sliding_window_pattern"))
        TRY(json_get_int(root, source, "sliding_window_pattern", 2, 4096, &pattern));
    config->sliding_window_pattern = (int32_t)pattern;
    return GT_OK;
}

/* Sets which layers have the window from layer_types: all from some number on, or all but every
 * n-th. */
static enum gt_status layer_types_parse(const json_t *root, const char *source,
                                        const struct arch *arch, struct model_config *config)
{
    const bool by_layer = arch->window == WINDOW_BY_LAYER;
    const json_t *types = json_object_get(root, "layer_types");
    if (json_array_size(types) != (size_t)config->n_layer)
        return FAIL(GT_DATA, "%s: field \"layer_types\": has %zu layers, num_hidden_layers is %d",
                    source, json_array_size(types), config->n_layer);
    if (arch->window == WINDOW_GIVEN && layer_first(types, config, false) < config->n_layer)
        return refuse_text(source, "layer_types", "full_attention",
                           "with a sliding_window only sliding_attention is, since transformers "
                           "gives all layers of this class the window");
    if (!by_layer)
        config->max_window_layers = layer_first(types, config, true);
    else if (has(root, "sliding_window_pattern"))
        TRY(pattern_parse(root, source, config));
    if ((!by_layer || config->sliding_window_pattern > 0) && layers_agree(types, config))
        return GT_OK;
    if (config->max_window_layers == 0)
        config->sliding_window_pattern = layer_first(types, config, false) + 1;
    if (config->sliding_window_pattern != 1 && layers_agree(types, config))
        return GT_OK;
    return FAIL(
        GT_UNSUPPORTED,
        "%s: field \"layer_types\": this order is not supported; windows from one layer on, or in all but "
        "every n-th, are",
        source);
}

/* Sets the window and the layers that have it. layer_types lists these layers.  Without it, in
 * classes whose use_sliding_window must be set, they are all layers from number max_window_layers
 * on. */
static enum gt_status window_parse(const json_t *root, const char *source, const struct arch *arch,
                                   struct model_config *config)
{
    const json_t *given = json_object_get(root, "sliding_window");
    bool used = arch->window == WINDOW_ALWAYS || arch->window == WINDOW_BY_LAYER ||
                (arch->window == WINDOW_GIVEN && given != NULL);
    int64_t length = WINDOW_DEFAULT, first = WINDOW_LAYERS_DEFAULT;
    TRY(layers_check(root, source, arch));
    if (arch->window == WINDOW_ON_REQUEST)
        TRY(OPTIONAL(json_get_bool, root, source, "use_sliding_window", &used));
    if (arch->window == WINDOW_ON_REQUEST && has(root, "max_window_layers"))
        TRY(json_get_int(root, source, "max_window_layers", 0, INT32_MAX, &first));
    config->sliding_window = config->sliding_window_pattern = 0;
    if (!used || (json_is_null(given) && arch->window != WINDOW_BY_LAYER))
        return GT_OK;
    if (given != NULL)
        TRY(json_get_int(root, source, "sliding_window", 1, INT32_MAX, &length));
    config->sliding_window = (int32_t)length;
    if (has(root, "layer_types"))
        TRY(layer_types_parse(root, source, arch, config));
    else if (arch->window == WINDOW_BY_LAYER)
        TRY(pattern_parse(root, source, config));
    else if (arch->window == WINDOW_ON_REQUEST)
        config->max_window_layers = (int32_t)min_i64(first, config->n_layer);
    if (config->max_window_layers == config->n_layer)
        config->sliding_window = config->max_window_layers = config->sliding_window_pattern = 0;
    return GT_OK;
}

/* Reads the fields of Qwen3_5TextConfig that are not in the table: which layers have attention, and
 * the width of keys. */
static enum gt_status delta_parse(const json_t *root, const char *source, const struct arch *arch,
                                  struct model_config *config)
{
    const json_t *types = json_object_get(root, "layer_types");
    const int32_t size = config->linear_value_head_dim;
    int32_t keys = 128;
    if (arch != arch_get(ARCH_qwen3_5))
        return GT_OK;
    TRY(flag_expect(root, source, "attn_output_gate", true));
    if (config->mlp != MLP_SWIGLU)
        return refuse_text(source, "hidden_act",
                           json_string_value(json_object_get(root, "hidden_act")),
                           "only silu is, which the convolutions have too");
    TRY(OPTIONAL(hf_size_field, root, source, "linear_key_head_dim", &keys));
    if (keys != size)
        return FAIL(GT_UNSUPPORTED,
                    "%s: field \"linear_key_head_dim\": %d is not supported with "
                    "\"linear_value_head_dim\": %d; both must be equal",
                    source, keys, size);
    for (size_t i = 0; json_is_array(types) && i <= json_array_size(types); i++) {
        const char *type = json_string_value(json_array_get(types, i));
        if (type == NULL || strcmp(type, "full_attention") == 0) {
            config->full_attention_interval = (int32_t)i + 1;
            break;
        }
    }
    for (int32_t layer = 0; json_is_array(types) && layer < config->n_layer; layer++) {
        const char *type = json_string_value(json_array_get(types, (size_t)layer));
        if (json_array_size(types) != (size_t)config->n_layer || type == NULL ||
            (strcmp(type, "linear_attention") == 0) != shape_is_linear(&config->shape, layer))
            return FAIL(GT_UNSUPPORTED,
                        "%s: field \"layer_types\": this order is not supported; "
                        "full_attention in every n-th layer is",
                        source);
    }
    return GT_OK;
}

/* Reads longrope's divisors, one for each pair. */
static enum gt_status divisors_parse(const json_t *object, const char *source, const char *name,
                                     struct rope_config *rope, int which)
{
    const json_t *list = json_object_get(object, name), *value;
    const size_t count = json_array_size(list);
    size_t i;
    if (count == 0 || count > ROPE_PAIRS_MAX || (which == 1 && count != (size_t)rope->pairs))
        return FAIL(GT_DATA,
                    "%s: field \"%s\": expected a list of a number for each pair of a head", source,
                    name);
    rope->pairs = (int32_t)count;
    json_array_foreach(list, i, value) rope->divisors[which][i] = (float)json_number_value(value);
    return GT_OK;
}

static enum gt_status longrope_parse(const json_t *object, const char *source, int32_t positions,
                                     struct rope_config *rope)
{
    double factor = (double)positions / rope->original_context;
    TRY(divisors_parse(object, source, "short_factor", rope, 0));
    TRY(divisors_parse(object, source, "long_factor", rope, 1));
    TRY(hf_real_field(object, source, "factor", 1.0, 1e9, &factor));
    rope->attention_factor = longrope_attention(factor, rope->original_context);
    return hf_real_field(object, source, "attention_factor", 1e-9, 1e9, &rope->attention_factor);
}

/* mscale and mscale_all_dim determine an attention factor, as in modeling_rope_utils.py. */
static enum gt_status yarn_parse(const json_t *object, const char *source, int32_t positions,
                                 struct rope_config *rope)
{
    double mscale = 0.0, all = 0.0;
    rope->whole_pairs = true;
    rope->factor = rope->factor > 0.0 ? rope->factor : (double)positions / rope->original_context;
    rope->beta_fast = 32.0;
    rope->beta_slow = 1.0;
    TRY(hf_real_field(object, source, "beta_fast", 1e-9, 1e9, &rope->beta_fast));
    TRY(hf_real_field(object, source, "beta_slow", 1e-9, 1e9, &rope->beta_slow));
    TRY(hf_real_field(object, source, "mscale", 0.0, 1e9, &mscale));
    TRY(hf_real_field(object, source, "mscale_all_dim", 0.0, 1e9, &all));
    TRY(OPTIONAL(json_get_bool, object, source, "truncate", &rope->whole_pairs));
    const double more = rope_yarn_attention(rope->factor) - 1.0;
    rope->attention_factor =
        mscale > 0.0 && all > 0.0 ? (mscale * more + 1.0) / (all * more + 1.0) : more + 1.0;
    return hf_real_field(object, source, "attention_factor", 1e-9, 1e9, &rope->attention_factor);
}

static enum gt_status scaling_kind(const json_t *object, const char *source,
                                   const struct arch *arch, enum rope_scaling *out)
{
    static const char *const types[] = {
        [ROPE_SCALING_NONE] = "default",      [ROPE_SCALING_LINEAR] = "linear",
        [ROPE_SCALING_LLAMA3] = "llama3",     [ROPE_SCALING_YARN] = "yarn",
        [ROPE_SCALING_LONGROPE] = "longrope", [ROPE_SCALING_DYNAMIC] = "dynamic"};
    const char *type = types[0];
    TRY(OPTIONAL(json_get_string, object, source, has(object, "rope_type") ? "rope_type" : "type",
                 &type));
    if (arch == arch_get(ARCH_phi3) && (strcmp(type, "su") == 0 || strcmp(type, "yarn") == 0))
        type = "longrope"; /* the names that Phi3Config had for it */
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (strcmp(type, types[i]) == 0) {
            *out = (enum rope_scaling)i;
            return GT_OK;
        }
    return refuse_text(source, "rope_type", type,
                       "default, linear, dynamic, llama3, yarn and longrope are");
}

/* Reads the object of a scaling.  An original context outside the object takes precedence over one
 * inside, except where each kind of layer has an object. */
static enum gt_status scaling_parse(const json_t *root, const json_t *object, const char *source,
                                    const struct arch *arch, struct model_config *config)
{
    struct rope_config *rope = &config->rope;
    double context = config->block_size;
    static const char original[] = "original_max_position_embeddings";
    enum rope_scaling kind;
    TRY(scaling_kind(object, source, arch, &kind));
    if (kind == ROPE_SCALING_NONE)
        return GT_OK;
    rope->scaling = kind;
    if (rope->scaling == ROPE_SCALING_LONGROPE && arch == arch_get(ARCH_phi3))
        context = PHI3_CONTEXT;
    TRY(hf_real_field(object, source, "factor", 1.0, 1e9, &rope->factor));
    TRY(hf_real_field(object, source, "low_freq_factor", 1e-9, 1e9, &rope->low_freq_factor));
    TRY(hf_real_field(object, source, "high_freq_factor", 1e-9, 1e9, &rope->high_freq_factor));
    if (rope->scaling != ROPE_SCALING_DYNAMIC)
        TRY(hf_real_field(arch->window != WINDOW_BY_LAYER && has(root, original) ? root : object,
                          source, original, 1.0, (double)HF_SIZE_MAX, &context));
    rope->original_context = (int32_t)context;
    if (rope->scaling == ROPE_SCALING_YARN)
        TRY(yarn_parse(object, source, config->block_size, rope));
    if (rope->scaling == ROPE_SCALING_LONGROPE)
        TRY(longrope_parse(object, source, config->block_size, rope));
    char text[ROPE_SCALING_TEXT_MAX];
    struct rope_config again;
    if (rope_scaling_read(rope_scaling_text(text, rope), &again))
        return GT_OK;
    return FAIL(GT_DATA, "%s: field \"rope_scaling\": a number is missing or impossible: %.200s",
                source, text);
}

/* Reads the object in which transformers 5 describes the layers with a window. */
static enum gt_status local_parse(const json_t *object, const char *source, double *theta)
{
    const char *type = "default";
    TRY(OPTIONAL(json_get_string, object, source, "rope_type", &type));
    if (strcmp(type, "default") != 0)
        return refuse_text(source, "sliding_attention", type, "only rope_type default is");
    return hf_real_field(object, source, "rope_theta", 1.0, 1e12, theta);
}

static bool rope_equals(const struct shape *a, const struct shape *b)
{
    char text[2][ROPE_SCALING_TEXT_MAX];
    return a->rope.theta == b->rope.theta && a->partial_rotary_factor == b->partial_rotary_factor &&
           strcmp(rope_scaling_text(text[0], &a->rope), rope_scaling_text(text[1], &b->rope)) == 0;
}

/* Reads the object of transformers 4, rope_scaling, or that of 5, rope_parameters, which is ignored
 * beside the former.  A file may have both if they agree. */
static enum gt_status rope_parse(const json_t *root, const char *source, const struct arch *arch,
                                 struct model_config *config)
{
    static const char *const names[] = {"rope_scaling", "rope_parameters"};
    struct rope_config *rope = &config->rope;
    int objects = 0;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const struct shape before = config->shape;
        const json_t *object;
        if (!has(root, names[i]))
            continue;
        TRY(json_get_object(root, source, names[i], &object));
        objects += json_object_size(object) > 0;
        if (arch->window == WINDOW_BY_LAYER && has(object, "sliding_attention"))
            TRY(local_parse(json_object_get(object, "sliding_attention"), source,
                            &config->rope_local_theta));
        if (arch->window == WINDOW_BY_LAYER && has(object, "full_attention"))
            TRY(json_get_object(object, source, "full_attention", &object));
        TRY(share_parse(object, source, arch, &config->partial_rotary_factor));
        TRY(hf_real_field(object, source, "rope_theta", 1.0, 1e12, &rope->theta));
        TRY(scaling_parse(root, object, source, arch, config));
        if (objects == 2 && !rope_equals(&before, &config->shape))
            return FAIL(
                GT_UNSUPPORTED,
                "%s: field \"rope_parameters\": differs from \"rope_scaling\", beside which "
                "transformers ignores it; move all members to one of them",
                source);
    }
    return GT_OK;
}

static enum gt_status llama_sizes_check(const json_t *root, const char *source,
                                        const struct arch *arch, struct model_config *config)
{
    config->block_size = GEMMA3_POSITIONS;
    if (arch->window != WINDOW_BY_LAYER || has(root, "max_position_embeddings"))
        TRY(hf_size_field(root, source, "max_position_embeddings", &config->block_size));
    if (config->n_kv_head == 0 || json_is_null(json_object_get(root, "num_key_value_heads")))
        config->n_kv_head = config->n_head;
    if (config->n_head % config->n_kv_head != 0)
        return FAIL(GT_DATA,
                    "%s: field \"num_key_value_heads\": %d does not divide num_attention_heads, %d",
                    source, config->n_kv_head, config->n_head);
    if (config->head_dim > 0 || config->n_embd % config->n_head == 0)
        return GT_OK;
    return FAIL(
        GT_DATA,
        "%s: field \"num_attention_heads\": %d does not divide hidden_size, %d, and there is no head_dim",
        source, config->n_head, config->n_embd);
}

/* Llama's attention_bias covers all four projections, mlp_bias those of the MLP; here both must be
 * equal.  Other classes have at most the first field, and it must be false. */
static enum gt_status biases_parse(const json_t *root, const char *source, const struct arch *arch,
                                   bool *bias)
{
    bool mlp = false;
    if (arch->biases == BIASES_NONE)
        return arch->class_name == NULL ? GT_OK
                                        : flag_expect(root, source, "attention_bias", false);
    TRY(OPTIONAL(json_get_bool, root, source, "attention_bias", bias));
    TRY(OPTIONAL(json_get_bool, root, source, "mlp_bias", &mlp));
    if (mlp == *bias)
        return GT_OK;
    return FAIL(
        GT_UNSUPPORTED,
        "%s: field \"attention_bias\": %s is not supported with \"mlp_bias\": %s; both must be equal",
        source, *bias ? "true" : "false", mlp ? "true" : "false");
}

static enum gt_status llama_parse(const json_t *root, const char *source, const struct arch *arch,
                                  struct model_config *config)
{
    const bool is_ours = arch->class_name == NULL;
    const json_t *ours = NULL;
    double dropout = 0.0;
    TRY(llama_sizes_check(root, source, arch, config));
    TRY(foreign_check(root, source, arch));
    TRY(share_parse(root, source, arch, &config->partial_rotary_factor));
    TRY(biases_parse(root, source, arch, &config->bias));
    TRY(rope_parse(root, source, arch, config));
    TRY(flag_expect(root, source, "use_bidirectional_attention", false));
    TRY(rope_layers_check(root, source, &config->shape));
    TRY(window_parse(root, source, arch, config));
    TRY(delta_parse(root, source, arch, config));
    if (is_ours || has(root, GPT_TRAIN_OBJECT))
        TRY(json_get_object(root, source, GPT_TRAIN_OBJECT, &ours));
    if (is_ours)
        TRY(private_parse(ours, source, &config->shape));
    TRY(hf_real_field(ours != NULL ? ours : root, source,
                      ours != NULL ? "dropout" : "attention_dropout", 0.0, 1.0, &dropout));
    config->dropout = (float)dropout;
    config->max_positions = config->position == POSITION_ROPE ? config->block_size : 0;
    return GT_OK;
}

/* ---- fields that are not known ---- */

/* Fields of every class that have no effect here.  Source: transformers, configuration_utils.py. */
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
                                       "mamba_ssm_dtype",
                                       "mtp_num_hidden_layers",
                                       "mtp_use_dedicated_embeddings",
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
                                       "cache_implementation",
                                       "encoder_no_repeat_ngram_size",
                                       GPT_TRAIN_OBJECT,
                                       NULL};

/* Fields that are read or checked, besides those that are written. */
static const char *const checked[] = {"add_cross_attention",    "rope_parameters",
                                      "partial_rotary_factor",  "layer_types",
                                      "no_rope_layers",         "sliding_window",
                                      "use_sliding_window",     "max_window_layers",
                                      "embedding_multiplier",   "residual_multiplier",
                                      "logits_scaling",         "original_max_position_embeddings",
                                      "sliding_window_pattern", "linear_key_head_dim",
                                      "attn_output_gate",       NULL};

static bool is_listed(const char *const *list, const char *name)
{
    while (*list != NULL && strcmp(*list, name) != 0)
        list++;
    return *list != NULL;
}

/* Returns true if a field is known, or with `is_ours` a member of our object. */
static bool is_known(const struct arch *arch, bool is_ours, const char *name)
{
    for (int p = 0; p < SHAPE_PROPERTIES; p++) {
        const enum shape_property property = (enum shape_property)p;
        const char *field = is_ours ? shape_row_get(property)->name : arch_field(arch, property);
        if (field != NULL && strcmp(field, name) == 0)
            return true;
    }
    if (is_ours)
        return is_listed(private_order, name);
    return is_listed(harmless, name) || is_listed(checked, name) ||
           is_listed(orders[arch->family], name);
}

/* Logs the fields that are set but unknown, or with `is_ours` such members of our object. */
static void unknown_report(const json_t *root, const char *source, const struct arch *arch,
                           bool is_ours)
{
    char list[UNKNOWN_TEXT_MAX] = "";
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)root, name, value)
    {
        const size_t used = strlen(list), size = json_array_size(value) + json_object_size(value);
        const bool number = json_is_number(value) && json_number_value(value) != 0.0;
        bool fine = !json_is_true(value) && !number && size + json_string_length(value) == 0;
        fine = fine || name[0] == '_' || strncmp(name, "unsloth_", 8) == 0;
        if (!fine && !is_known(arch, is_ours, name))
            (void)snprintf(list + used, sizeof list - used, "%s\"%.64s\": %s", used > 0 ? ", " : "",
                           name, JSON_SHORT_TEXT(value));
    }
    if (list[0] != '\0')
        log_warning(
            "%s: %s: not known here and ignored; if they change the model, its losses will be wrong",
            source, list);
}

/* ---- any model ---- */

const char *hf_config_lacks(const struct model_config *config, char text[static HF_LACKS_MAX])
{
    enum shape_property differs;
    if (arch_of(&config->shape)->class_name != NULL)
        return NULL;
    const struct arch *arch = arch_nearest(&config->shape, &differs);
    (void)snprintf(text, HF_LACKS_MAX, "%s in %s's blocks", SHAPE_TEXT(&config->shape, differs),
                   arch->name);
    return text;
}

enum gt_status hf_config_make(const struct model_config *config, int32_t bos_token,
                              int32_t eos_token, json_t **out)
{
    const struct arch *arch = arch_of(&config->shape);
    struct shape shape = config->shape;
    shape_sizes_fill(&shape);
    json_t *root = json_pack("{s:s, s:o, s:o, s:s}", "model_type", arch_model_type(arch),
                             "bos_token_id", token_json(bos_token), "eos_token_id",
                             token_json(eos_token), "torch_dtype", "float32");
    int failures = fields_add(root, &shape, arch);
    failures |=
        arch->family == FAMILY_GPT2 ? gpt2_add(root, config) : llama_add(root, config, arch);
    failures |= private_add(root, config, arch);
    if (arch->class_name != NULL)
        failures |= json_object_set_new(root, "architectures", json_pack("[s]", arch->class_name));
    *out = ordered(json_whole(root, failures), orders[arch->family]);
    return *out != NULL ? GT_OK
                        : FAIL(GT_NO_MEMORY, "out of memory: config.json could not be made");
}

/* Returns roughly the number of parameters of a model of this width and depth, or 7e9 if the fields
 * are missing. */
static double parameters_like(const json_t *root)
{
    const json_t *text = json_object_get(root, "text_config"),
                 *at = json_is_object(text) ? text : root;
    const double width = json_number_value(json_object_get(at, "hidden_size")),
                 layers = json_number_value(json_object_get(at, "num_hidden_layers")),
                 vocabulary = json_number_value(json_object_get(at, "vocab_size"));
    return width > 0.0 && layers > 0.0 ? width * (12.0 * width * layers + vocabulary) : 7e9;
}

static enum gt_status arch_find(const json_t *root, const char *source, const char *type,
                                const struct arch **out)
{
    char list[WORDS_TEXT_MAX] = "";
    for (int kind = 0; kind < ARCH_KINDS; kind++) {
        const size_t used = strlen(list);
        *out = arch_get((enum arch_kind)kind);
        if (strcmp(arch_model_type(*out), type) == 0)
            return GT_OK;
        if ((*out)->class_name != NULL)
            (void)snprintf(list + used, sizeof list - used, "%s%s", used > 0 ? ", " : "",
                           arch_model_type(*out));
    }
    if (foreign_model_what(root, type) != NULL)
        return FAIL(GT_UNSUPPORTED,
                    "%s: field \"model_type\": \"%.64s\" is not supported, since it %s; a model of "
                    "about this size is %s",
                    source, type, foreign_model_what(root, type),
                    known_model_of_size(parameters_like(root)));
    return refuse_word(source, "model_type", type, list,
                       TEXT(WORDS_TEXT_MAX, "; a model of about this size is %s",
                            known_model_of_size(parameters_like(root))));
}

/* Refuses a class of transformers whose head rates texts or tokens and predicts none. */
static enum gt_status class_check(const json_t *root, const char *source)
{
    static const char *const heads[] = {"ForSequenceClassification", "ForTokenClassification",
                                        "ForQuestionAnswering", "RewardModel"};
    const char *class =
        json_string_value(json_array_get(json_object_get(root, "architectures"), 0));
    for (size_t i = 0; class != NULL && i < sizeof heads / sizeof heads[0]; i++)
        if (strstr(class, heads[i]) != NULL)
            return FAIL(GT_UNSUPPORTED,
                        "%s: field \"architectures\": \"%.64s\" is not supported, since it rates "
                        "texts and does not continue them; use the model that it was trained from, "
                        "a ...ForCausalLM",
                        source, class);
    return GT_OK;
}

static enum gt_status rest_parse(const json_t *root, const char *source, bool tied,
                                 struct hf_config_rest *rest)
{
    rest->tied = tied;
    TRY(OPTIONAL(json_get_bool, root, source, "tie_word_embeddings", &rest->tied));
    TRY(token_field(root, source, "bos_token_id", &rest->bos_token));
    return token_field(root, source, "eos_token_id", &rest->eos_token);
}

static enum gt_status config_parse(const json_t *root, const char *source, struct model_config *out,
                                   struct hf_config_rest *out_rest)
{
    struct model_config config = {.n_layer = 0};
    struct hf_config_rest rest = {.is_part = false};
    const struct arch *arch;
    const char *type;
    TRY(json_get_string(root, source, "model_type", &type));
    TRY(arch_find(root, source, type, &arch));
    TRY(class_check(root, source));
    TRY(rest_parse(root, source, !arch->silent.untied, &rest));
    TRY(fields_parse(root, source, arch, &config.shape));
    if (arch->family == FAMILY_GPT2)
        TRY(gpt2_parse(root, source, &config));
    else
        TRY(llama_parse(root, source, arch, &config));
    config.padded_vocab_size = config.vocab_size;
    unknown_report(root, source, arch, false);
    if (has(root, GPT_TRAIN_OBJECT)) /* a later release may have written it */
        unknown_report(json_object_get(root, GPT_TRAIN_OBJECT), source, arch, true);
    *out = config;
    *out_rest = rest;
    return GT_OK;
}

/* Parses the text part of a model with vision: its fields are in text_config, except for the
 * tokens. */
static enum gt_status part_parse(const json_t *root, const char *source, struct model_config *out,
                                 struct hf_config_rest *out_rest)
{
    static const char *const outside[] = {"bos_token_id", "eos_token_id", "tie_word_embeddings",
                                          "quantization_config"};
    const json_t *text;
    TRY(json_get_object(root, source, "text_config", &text));
    json_t *part = json_copy((json_t *)text);
    int failures = part == NULL;
    for (size_t i = 0; i < sizeof outside / sizeof outside[0]; i++)
        if (!has(text, outside[i]) && has(root, outside[i]))
            failures |= json_object_set(part, outside[i], json_object_get(root, outside[i]));
    if (!has(text, "model_type"))
        failures |= json_object_set_new(
            part, "model_type",
            json_string(TEXT(WORDS_TEXT_MAX, "%s_text",
                             json_string_value(json_object_get(root, "model_type")))));
    enum gt_status status = failures ? FAIL(GT_NO_MEMORY, "out of memory: %s", source) : GT_OK;
    THEN(status, config_parse(part, source, out, out_rest));
    json_decref(part);
    out_rest->is_part = true;
    return status;
}

enum gt_status hf_config_parse(const json_t *root, const char *source, struct model_config *out,
                               struct hf_config_rest *out_rest)
{
    const char *type = json_string_value(json_object_get(root, "model_type"));
    const bool part =
        type != NULL && (strcmp(type, PART_TYPE) == 0 || strcmp(type, PART_TYPE_QWEN) == 0);
    return part ? part_parse(root, source, out, out_rest)
                : config_parse(root, source, out, out_rest);
}
