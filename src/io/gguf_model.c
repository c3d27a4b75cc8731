/* Reads a model from a GGUF file.
 *
 * The keys become the fields of a config.json, so that hf_config.c decides what is supported, with
 * the names that its messages use.  Whether the output layer is the embedding, and whether linear
 * layers have biases, follows from the tensors.  Every tensor that the model needs must be there
 * with its shape, and no other, except for a second copy of the embedding and the divisors of
 * rotary frequencies.  The divisors determine the frequencies of Llama 3's scaling, but not its
 * parameters, which a key of ours contains.  Files of other programs are assumed to have the
 * parameters of all published models: low 1, high 4 and an original context of 8,192 positions.  In
 * both cases the parameters are checked against the divisors.
 */
#include "io/gguf_model.h"

#include <math.h>

#include "base/json.h"
#include "io/checkpoint_load.h"
#include "io/safetensors_table.h"
#include "model/parameters.h"

#define DIVISOR_TOLERANCE 1e-4
#define ORIGINAL_CONTEXT 8192
#define DIVISORS_MAX 512
#define GEMMA3_27B_LAYERS 62 /* by which llama.cpp's gemma3.cpp recognises this model */

/* Returns a key that begins with a dot, after the architecture's name. */
#define KEY_OF(arch, key) TEXT(GGUF_NAME_MAX, "%s%s", arch_gguf_name(arch), key)

static bool is_name(const char *text, size_t length, const char *name)
{
    return strncmp(text, name, length) == 0 && name[length] == '\0';
}

/* ---- the form of a tensor ---- */

/* The order of rows or columns in the file.  ORDER_NEIGHBOURS: rows of queries and keys where
 * llama.cpp rotates neighbours.  The last four: values of a gated delta net, whose heads llama.cpp
 * sorts so that their keys' heads are 0, 1, ..., 0, 1, ... They are all rows, the rows after the
 * keys, one row per head, or columns. */
enum order_kind {
    ORDER_SAME,
    ORDER_NEIGHBOURS,
    ORDER_VALUES,
    ORDER_VALUES_BEHIND,
    ORDER_HEADS,
    ORDER_COLUMNS
};

static const struct {
    const char *model, *file;
    enum order_kind order;
} tensor_names[] = {
    {"wte", "token_embd", ORDER_SAME},
    {"wpe", "position_embd", ORDER_SAME},
    {"attn.c_attn", "attn_qkv", ORDER_SAME},
    {"attn.c_proj", "attn_output", ORDER_SAME},
    {"mlp.c_fc", "ffn_up", ORDER_SAME},
    {"mlp.c_proj", "ffn_down", ORDER_SAME},
    {"ln_f", "output_norm", ORDER_SAME},
    {"model.embed_tokens", "token_embd", ORDER_SAME},
    {"self_attn.qkv_proj", "attn_qkv", ORDER_SAME},
    {"mlp.gate_up_proj", "ffn_up", ORDER_SAME},
    {"self_attn.q_proj", "attn_q", ORDER_NEIGHBOURS},
    {"self_attn.k_proj", "attn_k", ORDER_NEIGHBOURS},
    {"self_attn.v_proj", "attn_v", ORDER_SAME},
    {"self_attn.q_norm", "attn_q_norm", ORDER_SAME},
    {"self_attn.k_norm", "attn_k_norm", ORDER_SAME},
    {"self_attn.o_proj", "attn_output", ORDER_SAME},
    {"linear_attn.in_proj_qkv", "attn_qkv", ORDER_VALUES_BEHIND},
    {"linear_attn.in_proj_z", "attn_gate", ORDER_VALUES},
    {"linear_attn.in_proj_b", "ssm_beta", ORDER_HEADS},
    {"linear_attn.in_proj_a", "ssm_alpha", ORDER_HEADS},
    {"linear_attn.conv1d", "ssm_conv1d", ORDER_VALUES_BEHIND},
    {"linear_attn.A_log", "ssm_a", ORDER_HEADS}, /* these two are whole names */
    {"linear_attn.dt_bias", "ssm_dt.bias", ORDER_HEADS},
    {"linear_attn.norm", "ssm_norm", ORDER_SAME},
    {"linear_attn.out_proj", "ssm_out", ORDER_COLUMNS},
    {"mlp.gate_proj", "ffn_gate", ORDER_SAME},
    {"mlp.up_proj", "ffn_up", ORDER_SAME},
    {"mlp.down_proj", "ffn_down", ORDER_SAME},
    {"model.norm", "output_norm", ORDER_SAME},
    {"lm_head", "output", ORDER_SAME},
};

/* In adapters, A has the columns of its layer, and B the rows. */
static struct tensor_order order_make(const struct model_config *config,
                                      const struct parameter_shape *shape, enum order_kind kind)
{
    const size_t keys = (size_t)config->linear_num_key_heads,
                 size = (size_t)config->linear_value_head_dim,
                 row = shape->rank == 2  ? (size_t)shape->dims[1]
                       : shape->taps > 0 ? (size_t)shape->taps
                                         : 1,
                 half = (size_t)model_head_dim(config) / 2;
    struct tensor_order order = {.first = kind == ORDER_VALUES_BEHIND ? 2 * keys * size * row : 0,
                                 .unit = kind == ORDER_HEADS     ? row
                                         : kind == ORDER_COLUMNS ? size
                                                                 : size * row,
                                 .rows = keys,
                                 .columns =
                                     keys > 0 ? (size_t)config->linear_num_value_heads / keys : 0};
    if (kind == ORDER_NEIGHBOURS)
        order = (struct tensor_order){.unit = row, .rows = 2, .columns = half};
    const size_t period = order.unit * order.rows * order.columns;
    const bool idle = kind == ORDER_SAME || order.rows == 1 || order.columns == 1 ||
                      (kind == ORDER_NEIGHBOURS && !arch_of(&config->shape)->gguf_neighbours) ||
                      shape->adapter == (kind == ORDER_COLUMNS ? ADAPTER_B : ADAPTER_A);
    /* A model whose sizes do not fit, which no program runs, has no such order. */
    return idle || period == 0 || (parameter_elements(shape) - order.first) % period != 0
               ? (struct tensor_order){.unit = 0}
               : order;
}

static float one_more(float value)
{
    return value + 1.0f;
}

static float one_less(float value)
{
    return value - 1.0f;
}

/* A = -e^A_log, and back. */
static float decay_of(float value)
{
    return (float)-exp((double)value);
}

static float decay_log(float value)
{
    return (float)log(-(double)value);
}

void gguf_form_get(const struct model_config *config, const struct parameter_shape *shape,
                   struct gguf_form *out)
{
    int number, skip = 0;
    const struct arch *arch = arch_of(&config->shape);
    const bool gpt2 = arch->family == FAMILY_GPT2, turned = gpt2 && shape->linear;
    const char *full = shape->name, *name = NULL;
    const bool in_block =
        sscanf(full, gpt2 ? "h.%d.%n" : "model.layers.%d.%n", &number, &skip) == 1;
    const char *block = in_block ? TEXT(GGUF_NAME_MAX, "blk.%d.", number) : "";
    const enum adapter_matrix adapter = shape->adapter;
    const char *kind = adapter != ADAPTER_NONE ? strstr(full, ".lora_") : strrchr(full, '.');
    const size_t length = (size_t)(kind - (full + skip));
    size_t i = 0;
    *out = (struct gguf_form){.rank = shape->rank,
                              .dims = {shape->dims[shape->rank == 2 && !turned],
                                       shape->dims[shape->rank == 2 && turned]}};
    if (shape->taps > 0) {
        out->rank = 2;
        out->dims[0] = shape->taps;
        out->dims[1] = shape->dims[0] / shape->taps;
    }
    for (size_t k = 0; k < sizeof arch->norms / sizeof arch->norms[0]; k++)
        if (arch->norms[k].file != NULL && is_name(full + skip, length, arch->norms[k].file))
            name = arch->norms[k].gguf;
    while (name == NULL && !is_name(full + skip, length, tensor_names[i].model) &&
           strcmp(full + skip, tensor_names[i].model) != 0)
        i++;
    if (name == NULL) {
        name = tensor_names[i].file;
        kind = strcmp(full + skip, tensor_names[i].model) == 0 ? "" : kind;
        out->file.order = order_make(config, shape, tensor_names[i].order);
    }
    (void)snprintf(out->name, sizeof out->name, "%s%s%s", block, name,
                   adapter == ADAPTER_A   ? ".weight.lora_a"
                   : adapter == ADAPTER_B ? ".weight.lora_b"
                                          : kind);
    if (strcmp(name, "ssm_a") == 0) {
        out->file.map = decay_of;
        out->back = decay_log;
    } else if (config->norm_plus_one && shape->norm && shape->init == INIT_ZERO) {
        out->file.map = one_more;
        out->back = one_less;
    }
}

float gguf_rope_divisor(const struct model_config *config, int32_t i)
{
    struct rope_config plain = config->rope;
    const int32_t size = model_turned_dim(config);
    plain.scaling = ROPE_SCALING_NONE;
    return (float)(rope_frequency(&plain, size, 0, i) / rope_frequency(&config->rope, size, 0, i));
}

/* ---- keys ---- */
static enum gt_status architecture_get(const struct gguf *gguf, const struct arch **out)
{
    const char *text, *type;
    char known[128] = "";
    size_t count, type_count;
    if (gguf_text(gguf, "general.type", &type, &type_count) &&
        (type_count != 5 || memcmp(type, "model", 5) != 0))
        return FAIL(GT_UNSUPPORTED, "%s: key general.type: is \"%.*s\", not \"model\"", gguf->path,
                    (int)(type_count < 32 ? type_count : 32), type);
    if (!gguf_text(gguf, "general.architecture", &text, &count))
        return FAIL(GT_DATA, "%s: has no key general.architecture", gguf->path);
    for (int kind = 0; kind < ARCH_KINDS; kind++) {
        *out = arch_get((enum arch_kind)kind);
        const char *name = arch_gguf_name(*out);
        if ((*out)->class_name == NULL || strstr(known, name) != NULL)
            continue; /* in GGUF a mistral is a llama */
        if (is_name(text, count, name))
            return GT_OK;
        const size_t used = strlen(known);
        (void)snprintf(known + used, sizeof known - used, "%s%s", used > 0 ? ", " : "", name);
    }
    return FAIL(GT_UNSUPPORTED,
                "%s: key general.architecture: \"%.*s\" is not supported; these are: %s",
                gguf->path, (int)(count < 32 ? count : 32), text, known);
}

/* Copies an integer or a real into the object, under Hugging Face's name. */
static int field_copy(const struct gguf *gguf, const struct arch *arch, const char *key,
                      json_t *root, const char *name)
{
    int64_t integer;
    double real;
    const char *full = KEY_OF(arch, key);
    if (gguf_integer(gguf, full, &integer))
        return json_object_set_new(root, name, json_integer(integer));
    if (gguf_real(gguf, full, &real))
        return json_object_set_new(root, name, json_real(real));
    return 0;
}

static int tokens_copy(const struct gguf *gguf, json_t *root)
{
    int64_t id;
    int failures = 0;
    if (gguf_integer(gguf, "tokenizer.ggml.bos_token_id", &id))
        failures |= json_object_set_new(root, "bos_token_id", json_integer(id));
    if (gguf_integer(gguf, "tokenizer.ggml.eos_token_id", &id))
        failures |= json_object_set_new(root, "eos_token_id", json_integer(id));
    return failures;
}

static int gpt2_fields(const struct gguf *gguf, const struct arch *arch, json_t *root)
{
    return json_object_set_new(root, "activation_function", json_string("gelu_new")) |
           field_copy(gguf, arch, ".context_length", root, "n_positions") |
           field_copy(gguf, arch, ".feed_forward_length", root, "n_inner");
}

/* Gets Llama 3's scaling: from our own key, else with the largest divisor as its factor. */
static enum gt_status divisors_read(const struct gguf *gguf, int fd,
                                    const struct gguf_tensor *divisors, struct rope_config *out)
{
    const char *text;
    size_t count;
    float values[DIVISORS_MAX], most = 0.0f;
    char line[ROPE_SCALING_TEXT_MAX] = "";
    const size_t elements = (size_t)divisors->dims[0];
    if (divisors->rank != 1 || divisors->number != ggml_blocks[GGML_F32].number ||
        elements > DIVISORS_MAX)
        return FAIL(GT_DATA, "%s: tensor rope_freqs.weight: not a vector of float32", gguf->path);
    TRY(file_read_at(fd, gguf->path, divisors->offset_bytes, values, elements * sizeof values[0]));
    for (size_t i = 0; i < elements; i++)
        most = values[i] > most ? values[i] : most;
    *out = (struct rope_config){.scaling = ROPE_SCALING_LLAMA3,
                                .factor = (double)most,
                                .low_freq_factor = 1.0,
                                .high_freq_factor = 4.0,
                                .original_context = ORIGINAL_CONTEXT};
    if (!gguf_text(gguf, GGUF_KEY_SCALING, &text, &count) || count >= sizeof line)
        return GT_OK;
    memcpy(line, text, count);
    if (!rope_scaling_read(line, out) || out->scaling != ROPE_SCALING_LLAMA3)
        return FAIL(GT_DATA, "%s: key " GGUF_KEY_SCALING ": is not llama3:FACTOR,LOW,HIGH,CONTEXT",
                    gguf->path);
    return GT_OK;
}

static enum gt_status vector_read(const struct gguf *gguf, int fd, const char *name,
                                  float values[static DIVISORS_MAX], size_t *count)
{
    const struct gguf_tensor *tensor = gguf_tensor_find(gguf, name);
    if (tensor == NULL || tensor->rank != 1 || tensor->number != ggml_blocks[GGML_F32].number ||
        tensor->dims[0] > DIVISORS_MAX)
        return FAIL(GT_DATA, "%s: tensor %s: is missing, or not a vector of float32", gguf->path,
                    name);
    *count = (size_t)tensor->dims[0];
    return file_read_at(fd, gguf->path, tensor->offset_bytes, values, *count * sizeof values[0]);
}

/* Makes the object of a model that has other divisors in long contexts. */
static enum gt_status longrope_read(const struct gguf *gguf, const char *architecture, int fd,
                                    json_t *root)
{
    static const char *const fields[] = {"long_factor", "short_factor"}, *const names[] = {
                                                                             GGUF_LONG_DIVISORS,
                                                                             GGUF_SHORT_DIVISORS};
    json_t *scaling = json_pack("{s:s}", "rope_type", "longrope");
    enum gt_status status = GT_OK;
    int64_t original;
    double attention;
    int failures = scaling == NULL;
    for (int i = 0; i < 2 && status == GT_OK; i++) {
        float values[DIVISORS_MAX];
        size_t count = 0;
        json_t *list = json_array();
        status = vector_read(gguf, fd, names[i], values, &count);
        for (size_t k = 0; k < count; k++)
            failures |= json_array_append_new(list, json_real((double)values[k]));
        failures |= json_object_set_new(scaling, fields[i], list);
    }
    if (gguf_integer(gguf, TEXT(GGUF_NAME_MAX, "%s" GGUF_KEY_ORIGINAL, architecture), &original))
        failures |=
            json_object_set_new(root, "original_max_position_embeddings", json_integer(original));
    if (gguf_real(gguf, TEXT(GGUF_NAME_MAX, "%s" GGUF_KEY_ATTENTION, architecture), &attention))
        failures |= json_object_set_new(scaling, "attention_factor", json_real(attention));
    failures |= json_object_set_new(root, "rope_scaling", scaling);
    return status != GT_OK || !failures ? status
                                        : FAIL(GT_NO_MEMORY, "out of memory: %s", gguf->path);
}

/* Gets the factor of a scaling, or 0 if the file has none.  The second name is that of old files.
 */
static double factor_get(const struct gguf *gguf, const char *architecture)
{
    double factor = 0.0;
    if (!gguf_real(gguf, TEXT(GGUF_NAME_MAX, "%s.rope.scaling.factor", architecture), &factor))
        (void)gguf_real(gguf, TEXT(GGUF_NAME_MAX, "%s.rope.scale_linear", architecture), &factor);
    return factor;
}

/* A factor without a type is linear, as in llama.cpp. */
static enum gt_status scaling_keys(const struct gguf *gguf, const char *architecture, json_t **out)
{
    const char *kind;
    size_t count;
    const double factor = factor_get(gguf, architecture);
    int64_t original;
    const bool typed =
        gguf_text(gguf, TEXT(GGUF_NAME_MAX, "%s.rope.scaling.type", architecture), &kind, &count);
    if (typed ? is_name(kind, count, "none") : factor == 0.0)
        return GT_OK;
    const bool yarn = typed && is_name(kind, count, "yarn");
    if (typed && ((!yarn && !is_name(kind, count, "linear")) || factor == 0.0))
        return FAIL(GT_UNSUPPORTED,
                    "%s: key %s.rope.scaling.type: \"%.*s\" is not supported; linear and yarn are",
                    gguf->path, architecture, (int)(count < 32 ? count : 32), kind);
    *out = json_pack("{s:s, s:f}", "rope_type", yarn ? "yarn" : "linear", "factor", factor);
    if (yarn &&
        gguf_integer(gguf, TEXT(GGUF_NAME_MAX, "%s" GGUF_KEY_ORIGINAL, architecture), &original) &&
        json_object_set_new(*out, "original_max_position_embeddings", json_integer(original)) != 0)
        return FAIL(GT_NO_MEMORY, "out of memory: %s", gguf->path);
    return GT_OK;
}

/* Sets rope_scaling, unless there is none. */
static enum gt_status scaling_set(const struct gguf *gguf, const char *architecture, int fd,
                                  json_t *root)
{
    const struct gguf_tensor *divisors = gguf_tensor_find(gguf, "rope_freqs.weight");
    json_t *scaling = json_null();
    struct rope_config rope;
    if (gguf_tensor_find(gguf, GGUF_LONG_DIVISORS) != NULL)
        return longrope_read(gguf, architecture, fd, root);
    if (divisors == NULL) {
        TRY(scaling_keys(gguf, architecture, &scaling));
    } else {
        TRY(divisors_read(gguf, fd, divisors, &rope));
        scaling = json_pack("{s:s, s:f, s:f, s:f, s:i}", "rope_type", "llama3", "factor",
                            rope.factor, "low_freq_factor", rope.low_freq_factor,
                            "high_freq_factor", rope.high_freq_factor,
                            "original_max_position_embeddings", (int)rope.original_context);
    }
    if (scaling != NULL && json_object_set_new(root, "rope_scaling", scaling) == 0)
        return GT_OK;
    return FAIL(GT_NO_MEMORY, "out of memory: %s", gguf->path);
}

/* A llama with a window is a mistral in other formats.  The key has no effect in files of qwen2:
 * see export_gguf.c.  For gemma3, llama.cpp has constants for the other properties of windows. */
static int window_fields(const struct gguf *gguf, const struct arch *arch, json_t *root)
{
    int64_t window;
    const bool llama = arch == arch_get(ARCH_llama);
    if (arch == arch_get(ARCH_gemma3))
        return field_copy(gguf, arch, GGUF_KEY_WINDOW, root, "sliding_window");
    if ((!llama && arch->window != WINDOW_GIVEN) ||
        !gguf_integer(gguf, KEY_OF(arch, GGUF_KEY_WINDOW), &window) || window == 0)
        return 0;
    const char *type = llama ? arch_get(ARCH_mistral)->name : arch->name;
    return json_object_set_new(root, "model_type", json_string(type)) |
           json_object_set_new(root, "sliding_window", json_integer(window));
}

/* Sets fields of a gated delta net: keys are as wide as values, and the number of blocks excludes
 * those of multi-token prediction, which come last. */
static int delta_fields(const struct gguf *gguf, const struct arch *arch, json_t *root)
{
    int64_t predicting = 0;
    const json_t *size = json_object_get(root, "linear_value_head_dim");
    const json_int_t blocks = json_integer_value(json_object_get(root, "num_hidden_layers"));
    int failures = 0;
    if (arch != arch_get(ARCH_qwen3_5))
        return 0;
    if (size != NULL)
        failures |= json_object_set(root, "linear_key_head_dim", (json_t *)size);
    (void)gguf_integer(gguf, KEY_OF(arch, GGUF_KEY_PREDICTING), &predicting);
    if (predicting > 0 && predicting < blocks)
        failures |=
            json_object_set_new(root, "num_hidden_layers", json_integer(blocks - predicting));
    return failures;
}

/* Computes the share of a head that rotates from the number of its columns.  In most classes it
 * must be 1. */
static int share_field(const struct gguf *gguf, const struct arch *arch, json_t *root)
{
    int64_t turned;
    const double heads = json_number_value(json_object_get(root, "num_attention_heads")),
                 width = json_number_value(json_object_get(root, "hidden_size"));
    double size = json_number_value(json_object_get(root, "head_dim"));
    const bool given = gguf_integer(gguf, KEY_OF(arch, ".rope.dimension_count"), &turned);
    if ((!given && arch_field(arch, SHAPE_partial_rotary_factor) == NULL) || heads <= 0.0)
        return 0;
    size = size > 0.0 ? size : width / heads;
    return json_object_set_new(root, "partial_rotary_factor",
                               json_real(given ? (double)turned / size : 1.0));
}

static int llama_fields(const struct gguf *gguf, const struct arch *arch, json_t *root)
{
    int failures =
        window_fields(gguf, arch, root) |
        field_copy(gguf, arch, ".context_length", root, "max_position_embeddings") |
        json_object_set_new(root, "tie_word_embeddings",
                            json_boolean(gguf_tensor_find(gguf, "output.weight") == NULL));
    failures |= share_field(gguf, arch, root) | delta_fields(gguf, arch, root);
    if (arch->biases != BIASES_FIELDS)
        return failures;
    failures |=
        json_object_set_new(root, "attention_bias",
                            json_boolean(gguf_tensor_find(gguf, "blk.0.attn_output.bias") != NULL));
    return failures |
           json_object_set_new(root, "mlp_bias",
                               json_boolean(gguf_tensor_find(gguf, "blk.0.ffn_up.bias") != NULL));
}

/* Copies the properties that both files have. */
static int shape_copy(const struct gguf *gguf, const struct arch *arch, json_t *root)
{
    int failures = 0;
    for (int p = 0; p < SHAPE_PROPERTIES; p++) {
        const char *key = arch_gguf_key(arch, (enum shape_property)p),
                   *field = arch_field(arch, (enum shape_property)p);
        if (key != NULL && field != NULL && p != SHAPE_vocab_size)
            failures |= field_copy(gguf, arch, key, root, field);
    }
    return failures;
}

double gguf_scores_divisor(double n_layer, double n_embd, double n_head, double head_dim)
{
    return n_layer == GEMMA3_27B_LAYERS ? floor(n_embd / n_head) : head_dim;
}

/* Sets the values that llama.cpp uses where these keys are absent.  Source: its llama-model.cpp,
 * load_hparams(), and granite.cpp. */
static int absent_set(const struct arch *arch, json_t *root)
{
    const json_t *heads = json_object_get(root, arch_field(arch, SHAPE_n_head)),
                 *width = json_object_get(root, arch_field(arch, SHAPE_n_embd)),
                 *blocks = json_object_get(root, arch_field(arch, SHAPE_n_layer)),
                 *size = json_object_get(root, "head_dim");
    const double head_dim = json_is_integer(size)
                                ? json_number_value(size)
                                : json_number_value(width) / json_number_value(heads);
    const struct {
        enum shape_property property;
        double value;
    } usual[] = {{SHAPE_n_kv_head, json_number_value(heads)},
                 {SHAPE_head_dim, head_dim},
                 {SHAPE_rope_theta, 1e4},
                 {SHAPE_query_pre_attn_scalar,
                  gguf_scores_divisor(json_number_value(blocks), json_number_value(width),
                                      json_number_value(heads), head_dim)},
                 {SHAPE_attention_multiplier, 1.0 / sqrt(head_dim)}};
    int failures = 0;
    for (size_t i = 0; json_number_value(heads) > 0.0 && i < sizeof usual / sizeof usual[0]; i++) {
        const char *field = arch_field(arch, usual[i].property);
        const bool whole = shape_row_get(usual[i].property)->type == SHAPE_TYPE_INT;
        const bool possible = !whole || usual[i].value == floor(usual[i].value);
        if (field != NULL && json_object_get(root, field) == NULL && possible)
            failures |= json_object_set_new(root, field,
                                            whole ? json_integer((json_int_t)usual[i].value)
                                                  : json_real(usual[i].value));
    }
    return failures;
}

/* Refuses keys that change what llama.cpp computes, unless they have the only value that is
 * supported.  Source: llama.cpp, load_hparams() of its models; a file with architecture olmo2 and a
 * window is an OLMo 3. */
static enum gt_status keys_check(const struct gguf *gguf, const struct arch *arch)
{
    static const struct {
        const char *key;
        double supported;
        const char *arch; /* the only one to which this applies; NULL: all */
    } keys[] = {{".attention.causal", 1.0, NULL},
                {".attn_logit_softcapping", 0.0, NULL},
                {".final_logit_softcapping", 0.0, NULL},
                {".rope.scaling.yarn_attn_factor", 1.0, NULL},
                {".rope.scaling.yarn_beta_fast", 32.0, NULL},
                {".rope.scaling.yarn_beta_slow", 1.0, NULL},
                {".rope.scaling.yarn_ext_factor", 1.0, NULL},
                {".rope.scaling.yarn_log_multiplier", 0.0, NULL},
                {".rope.scaling.finetuned", 1.0, "granite"},
                {".rope.freq_base_swa", 1e4, "gemma3"},
                {".attention.sliding_window_pattern", GGUF_WINDOW_PATTERN, "gemma3"},
                {GGUF_KEY_WINDOW, 0.0, "olmo2"},
                {GGUF_KEY_ATTENTION, 1.0, NULL}};
    const bool longrope = gguf_tensor_find(gguf, GGUF_LONG_DIVISORS) != NULL,
               divisors = gguf_tensor_find(gguf, "rope_freqs.weight") != NULL;
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        const char *name = KEY_OF(arch, keys[i].key);
        int64_t integer;
        double real = NAN;
        if (gguf_key_find(gguf, name) == NULL ||
            (keys[i].arch != NULL && strcmp(keys[i].arch, arch->name) != 0) ||
            (longrope && strcmp(keys[i].key, GGUF_KEY_ATTENTION) == 0))
            continue;
        if (gguf_integer(gguf, name, &integer))
            real = (double)integer;
        else
            (void)gguf_real(gguf, name, &real);
        if (real != keys[i].supported)
            return FAIL(GT_UNSUPPORTED, "%s: key %s: %g is not supported; only %g is", gguf->path,
                        name, real, keys[i].supported);
    }
    const double factor = factor_get(gguf, arch_gguf_name(arch));
    if ((longrope || divisors) && factor != 0.0 && factor != 1.0)
        return FAIL(GT_UNSUPPORTED,
                    "%s: key %s.rope.scaling.factor: %g is not supported beside divisors of the "
                    "frequencies",
                    gguf->path, arch_gguf_name(arch), factor);
    return GT_OK;
}

/* Makes the config.json that corresponds to the keys, and parses it. */
static enum gt_status config_get(const struct gguf *gguf, int fd, struct model_config *config,
                                 struct hf_config_rest *rest)
{
    const struct arch *arch;
    const struct gguf_tensor *table = gguf_tensor_find(gguf, "token_embd.weight");
    TRY(architecture_get(gguf, &arch));
    TRY(keys_check(gguf, arch));
    if (table == NULL || table->rank != 2)
        return FAIL(GT_DATA, "%s: tensor token_embd.weight: is missing, or no matrix", gguf->path);
    json_t *root = json_pack("{s:s, s:I}", "model_type", arch_model_type(arch), "vocab_size",
                             (json_int_t)table->dims[1]);
    const bool gpt2 = arch->family == FAMILY_GPT2;
    int failures = root == NULL || shape_copy(gguf, arch, root) != 0 ||
                   tokens_copy(gguf, root) != 0 ||
                   (gpt2 ? gpt2_fields(gguf, arch, root)
                         : llama_fields(gguf, arch, root) | absent_set(arch, root)) != 0;
    enum gt_status status = failures ? FAIL(GT_NO_MEMORY, "out of memory: %s", gguf->path) : GT_OK;
    if (!gpt2)
        THEN(status, scaling_set(gguf, arch_gguf_name(arch), fd, root));
    THEN(status, hf_config_parse(root, gguf->path, config, rest));
    json_decref(root);
    return status;
}

static enum gt_status divisors_check(const struct gguf *gguf, int fd,
                                     const struct model_config *config)
{
    const struct gguf_tensor *divisors = gguf_tensor_find(gguf, "rope_freqs.weight");
    float value = 0.0f;
    if (divisors == NULL)
        return GT_OK;
    bool equal = !model_is_gpt2(config) && divisors->dims[0] == model_turned_dim(config) / 2;
    for (int64_t i = 0; equal && i < divisors->dims[0]; i++) {
        TRY(file_read_at(fd, gguf->path, divisors->offset_bytes + (uint64_t)i * sizeof value,
                         &value, sizeof value));
        const double wanted = (double)gguf_rope_divisor(config, (int32_t)i);
        equal = fabs((double)value - wanted) <= DIVISOR_TOLERANCE * wanted;
    }
    if (equal)
        return GT_OK;
    return FAIL(GT_UNSUPPORTED,
                "%s: tensor rope_freqs.weight: these frequencies are not those of Llama 3's models",
                gguf->path);
}

/* ---- tensors ---- */
static enum gt_status tensor_add(const struct gguf *gguf, const struct model_config *config,
                                 const struct parameter_shape *shape, struct safetensors *table)
{
    struct gguf_form form;
    enum ggml_type type;
    struct safetensors_tensor entry = {.transposed = shape->linear && model_is_gpt2(config)};
    gguf_form_get(config, shape, &form);
    entry.rank = parameter_file_dims(shape, entry.dims);
    entry.order = form.file.order;
    entry.map = form.back;
    const struct gguf_tensor *tensor = gguf_tensor_find(gguf, form.name);
    memcpy(entry.name, shape->name, sizeof entry.name);
    if (tensor == NULL)
        return FAIL(GT_DATA, "%s: tensor %s: is missing", gguf->path, form.name);
    if (tensor->rank != form.rank || tensor->dims[0] != form.dims[0] ||
        (tensor->rank == 2 && tensor->dims[1] != form.dims[1]))
        return FAIL(GT_DATA, "%s: tensor %s: is %s; the model needs %s", gguf->path, form.name,
                    SAFETENSORS_SHAPE_TEXT(tensor->dims, tensor->rank),
                    SAFETENSORS_SHAPE_TEXT(form.dims, form.rank));
    if (!ggml_type_find(tensor->number, &type))
        return FAIL(GT_UNSUPPORTED,
                    "%s: tensor %s: its type, number %" PRIu32
                    " of ggml, is not supported; F32, F16, BF16, Q8_0, "
                    "Q6_K, Q5_K, Q5_1, Q5_0, Q4_K and Q4_0 are",
                    gguf->path, form.name, tensor->number);
    const struct ggml_block *block = &ggml_blocks[type];
    if (form.dims[0] % (int64_t)block->values != 0)
        return FAIL(GT_DATA,
                    "%s: tensor %s: rows of %" PRId64
                    " values are not a whole number of blocks of %s",
                    gguf->path, form.name, form.dims[0], block->name);
    entry.block = block->dtype == DTYPE_COUNT ? block : NULL;
    entry.dtype = entry.block != NULL ? DTYPE_F32 : block->dtype;
    entry.offset_bytes = tensor->offset_bytes;
    return safetensors_add(table, &entry);
}

/* Returns true if a tensor is of a block of multi-token prediction. */
static bool is_predicting(const struct gguf *gguf, const struct model_config *config,
                          const char *name)
{
    int block;
    int64_t blocks;
    return gguf_integer(gguf, KEY_OF(arch_of(&config->shape), GGUF_KEY_PREDICTING), &blocks) &&
           sscanf(name, "blk.%d.", &block) == 1 && block >= config->n_layer;
}

/* Refuses a tensor that the table does not have: leaving it out would change what the model
 * computes. */
static enum gt_status unknown_refuse(const struct gguf *gguf, const struct model_config *config,
                                     const struct safetensors *table)
{
    size_t predicting = 0;
    for (size_t i = 0; i < gguf->tensor_count; i++) {
        const struct gguf_tensor *tensor = &gguf->tensors[i];
        if (is_predicting(gguf, config, tensor->name)) {
            predicting++;
            continue;
        }
        bool found = strcmp(tensor->name, "rope_freqs.weight") == 0 ||
                     strcmp(tensor->name, GGUF_LONG_DIVISORS) == 0 ||
                     strcmp(tensor->name, GGUF_SHORT_DIVISORS) == 0 ||
                     (!config->untied && strcmp(tensor->name, "output.weight") == 0);
        for (size_t k = 0; !found && k < table->count; k++)
            found = table->tensors[k].offset_bytes == tensor->offset_bytes;
        if (!found)
            return FAIL(GT_UNSUPPORTED, "%s: tensor %s: is not part of a model of this shape",
                        gguf->path, tensor->name);
    }
    hf_layout_predicting_log(gguf->path, predicting);
    return GT_OK;
}

static enum gt_status tensors_add(const struct gguf *gguf, const struct model_config *config,
                                  struct safetensors *table)
{
    const size_t count = parameters_file_count(config);
    if (count > gguf->tensor_count)
        return FAIL(GT_DATA, "%s: has %zu tensors; the model needs %zu", gguf->path,
                    gguf->tensor_count, count);
    for (size_t i = 0; i < count; i++) {
        struct parameter_shape shape;
        parameters_file_shape(config, i, &shape);
        TRY(tensor_add(gguf, config, &shape, table));
    }
    return unknown_refuse(gguf, config, table);
}

enum gt_status gguf_model_open(const void *owner, const char *path, struct model_config *out_config,
                               struct hf_config_rest *out_rest, struct safetensors **out)
{
    struct gguf *gguf;
    struct safetensors *table = NULL;
    TRY(gguf_open(owner, path, &gguf));
    enum gt_status status = safetensors_create(owner, path, &table);
    THEN(status, safetensors_file_add(table, path));
    const int fd = status == GT_OK ? table->files[0].fd : -1;
    THEN(status, config_get(gguf, fd, out_config, out_rest));
    THEN(status, divisors_check(gguf, fd, out_config));
    THEN(status, tensors_add(gguf, out_config, table));
    hostmem_free(gguf);
    return FINISH(status, out, table, hostmem_free);
}
