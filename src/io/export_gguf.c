/* Writes a model, or its adapters alone, as a GGUF file: keys, list of tensors, data.
 *
 * Keys and list are made in memory and written at once.  Tensors are in the model's order.  If the
 * architecture's reader needs it, the output layer follows, a copy of the embedding.  For
 * rope_scaling llama3 the divisors of the frequencies follow.  The architecture llama rotates
 * neighbours in a head, so the rows of its queries and keys, and of B of their adapters, are
 * written in that order. gguf_model.c has the orders of other tensors.  llama.cpp computes the tanh
 * form of GELU, so a GPT-2 trained with the erf form is written with a warning.  Source: ggml's
 * docs/gguf.md, version 3; llama.cpp's src/models/.
 *
 * A vocabulary of characters becomes llama.cpp's "llama" tokenizer, which merges by scores.  The
 * scores of tokens that merges make fall in the order of the merges, as in SentencePiece.  The
 * scores of the other characters continue this sequence.  Any other tokenizer becomes llama.cpp's
 * "gpt2" tokenizer, a byte-level BPE.  Kind bpe maps to it directly.  Kind bytes is a vocabulary of
 * 256 without merges.  Kind chars becomes a BPE too: each multi-byte character gets the merges that
 * build it, which llama.cpp applies without requiring tokens for the intermediate strings; a byte
 * that is not a character has no token.  Rows of the model beyond the vocabulary become unused
 * tokens, because llama.cpp takes the number of rows from this list.
 */
#include "io/export_gguf.h"

#include <strings.h>

#include "base/clock.h"
#include "base/progress.h"
#include "base/size.h"
#include "data/bpe.h"
#include "data/chat.h"
#include "data/tokenizer.h"
#include "data/tokenizer_export.h"
#include "data/tokenizer_generation.h"
#include "io/export_generation.h"
#include "io/export_options.h"
#include "io/export_weights.h"
#include "io/gguf_model.h"
#include "io/gguf_tokenizer.h"
#include "model/parameters.h"

#define CHARACTER_BYTES_MAX 4
#define UNKNOWN_TEXT "<unk>"
#define UNUSED_SCORE -10000.0f
#define QUANTIZATION_VERSION 2
#define KEYS_AT 16           /* where the number of keys is */
#define GGUF_ROPE_INTERVAL 4 /* a constant of llama.cpp's src/models/smollm3.cpp, without a key */
/* Constants of src/models/gemma3.cpp. */
#define GGUF_LOCAL_THETA 1e4

/* Everything before the data, in memory. */
struct head {
    FILE *stream;
    const char *architecture;
    json_t *generation;
    uint64_t keys;
    bool failed; /* no memory for something in it */
};

/* A tensor of the file. */
struct entry {
    struct parameter_shape source;
    struct gguf_form form;
    enum ggml_type type, wanted; /* wanted: the mixture's type if its blocks divided the rows */
    size_t size_bytes;
    int divisors; /* number of a tensor of divisors, from 1, which is not in the model; else 0 */
};

/* ---- little-endian numbers, counted strings, keys with typed values ---- */
static void put(struct head *head, const void *bytes, size_t count)
{
    (void)fwrite(bytes, 1, count, head->stream); /* a failure is found at the end */
}

static void put_u32(struct head *head, uint32_t value)
{
    put(head, &value, sizeof value);
}

static void put_u64(struct head *head, uint64_t value)
{
    put(head, &value, sizeof value);
}

static void put_string(struct head *head, const char *text, size_t count)
{
    put_u64(head, count);
    put(head, text, count);
}

/* Puts the architecture before a name that begins with a dot. */
static void key(struct head *head, const char *name, enum gguf_value type, const void *value,
                size_t count)
{
    char full[GGUF_NAME_MAX];
    const int length =
        snprintf(full, sizeof full, "%s%s", name[0] == '.' ? head->architecture : "", name);
    head->keys++;
    put_string(head, full, (size_t)length);
    put_u32(head, (uint32_t)type);
    put(head, value, count);
}

static void key_u32(struct head *head, const char *name, int32_t value)
{
    key(head, name, GGUF_UINT32, &value, sizeof value);
}

static void key_f32(struct head *head, const char *name, double value)
{
    key(head, name, GGUF_FLOAT32, &(float){(float)value}, sizeof(float));
}

static void key_string(struct head *head, const char *name, const char *text)
{
    key(head, name, GGUF_STRING, "", 0);
    put_string(head, text, strlen(text));
}

/* Begins an array; the caller then puts `count` elements of `type`. */
static void key_array(struct head *head, const char *name, enum gguf_value type, uint64_t count)
{
    key(head, name, GGUF_ARRAY, "", 0);
    put_u32(head, (uint32_t)type);
    put_u64(head, count);
}

/* ---- the tokenizer ---- */
struct text {
    size_t count;
    char bytes[2 * BPE_TOKEN_BYTES_MAX + 1];
};

static bool has_characters(const struct tokenizer *tokenizer)
{
    return tokenizer_pipeline(tokenizer)->characters;
}

/* The same for a token of a vocabulary of characters. llama.cpp's converter writes spaces in added
 * tokens too. */
static enum gguf_token character_token_text(const struct bpe *bpe, int32_t id, struct text *out)
{
    const char *bytes = NULL;
    const bool literal = bpe_is_literal(bpe, id);
    out->count = literal ? bpe_token_shown(bpe, id, &bytes) : bpe_token(bpe, id, &bytes);
    memcpy(out->bytes, bytes, out->count);
    if (!bpe_is_special(bpe, id))
        return bpe_is_byte(bpe, id) ? GGUF_TOKEN_BYTE : GGUF_TOKEN_NORMAL;
    if (id == bpe_special_find(bpe, UNKNOWN_TEXT))
        return GGUF_TOKEN_UNKNOWN;
    return literal ? GGUF_TOKEN_USER_DEFINED : GGUF_TOKEN_CONTROL;
}

/* Sets *out to the token's text in the file, and returns its type. */
static enum gguf_token token_text(const struct tokenizer *tokenizer, int32_t id, struct text *out)
{
    char scratch[CHARACTER_BYTES_MAX];
    const char *bytes = NULL;
    const struct bpe *bpe = tokenizer->bpe;
    if (id >= tokenizer->vocab_size) {
        out->count = (size_t)snprintf(out->bytes, sizeof out->bytes, "[PAD%" PRId32 "]", id);
        return GGUF_TOKEN_UNUSED;
    }
    if (has_characters(tokenizer))
        return character_token_text(bpe, id, out);
    const size_t count = tokenizer_token_bytes(tokenizer, id, scratch, &bytes);
    if (bpe != NULL && bpe_is_special(bpe, id)) {
        memcpy(out->bytes, bytes, count);
        out->count = count;
        return bpe_is_literal(bpe, id) ? GGUF_TOKEN_USER_DEFINED : GGUF_TOKEN_CONTROL;
    }
    out->count = bpe_alphabet_write(bytes, count, out->bytes);
    return GGUF_TOKEN_NORMAL;
}

static void bpe_merges_write(struct head *head, const struct bpe *bpe)
{
    char line[BPE_MERGE_BYTES];
    key_array(head, "tokenizer.ggml.merges", GGUF_STRING, bpe->merge_count);
    for (size_t i = 0; i < bpe->merge_count; i++)
        put_string(head, line, bpe_merge_write(bpe, i, line));
}

/* Writes the merges of all characters; with a NULL writer it only counts them.  Returns their
 * number.  Characters ascend, so those with a common prefix are adjacent, and a merge is new unless
 * the previous character has it too. */
static uint64_t character_merges(struct head *head, const struct tokenizer *tokenizer)
{
    char before[CHARACTER_BYTES_MAX] = {0};
    uint64_t merges = 0;
    for (int32_t id = 0; id < tokenizer->vocab_size; id++) {
        char scratch[CHARACTER_BYTES_MAX] = {0}, line[2 * CHARACTER_BYTES_MAX + 2];
        const char *bytes = NULL;
        const size_t count = tokenizer_token_bytes(tokenizer, id, scratch, &bytes);
        for (size_t end = 2; end <= count; end++) {
            if (memcmp(before, bytes, end) == 0)
                continue;
            merges++;
            if (head != NULL)
                put_string(head, line,
                           bpe_alphabet_write_pair(bytes, end - 1, bytes + end - 1, 1, line));
        }
        memset(before, 0, sizeof before);
        memcpy(before, bytes, count);
    }
    return merges;
}

static void merges_write(struct head *head, const struct tokenizer *tokenizer)
{
    const struct bpe *bpe = tokenizer->bpe;
    if (bpe != NULL) {
        bpe_merges_write(head, bpe);
        return;
    }
    const bool characters = tokenizer->kind == TOKENIZER_CHARS;
    key_array(head, "tokenizer.ggml.merges", GGUF_STRING,
              characters ? character_merges(NULL, tokenizer) : 0);
    if (characters)
        (void)character_merges(head, tokenizer);
}

/* Puts the scores of a vocabulary of characters, in the order of the ids. */
static enum gt_status scores_put(struct head *head, const struct bpe *bpe, int32_t vocab_size)
{
    struct text text;
    float *scores;
    int32_t next = 0;
    TRY(HOSTMEM_NEW(bpe, (size_t)vocab_size, "scores of tokens", &scores));
    for (size_t i = 0; i < bpe->merge_count; i++)
        if (scores[bpe->merges[i].result] == 0.0f)
            scores[bpe->merges[i].result] = -(float)++next;
    key_array(head, "tokenizer.ggml.scores", GGUF_FLOAT32, (uint64_t)vocab_size);
    for (int32_t id = 0; id < vocab_size; id++) {
        const bool unused = (size_t)id >= bpe->vocab_size;
        if (unused)
            scores[id] = UNUSED_SCORE;
        else if (scores[id] == 0.0f && character_token_text(bpe, id, &text) == GGUF_TOKEN_NORMAL)
            scores[id] = -(float)++next;
        put(head, &scores[id], sizeof scores[id]);
    }
    hostmem_free(scores);
    return GT_OK;
}

/* Puts the keys that llama.cpp's "llama" tokenizer has instead of merges. */
static void characters_put(struct head *head, const struct tokenizer *tokenizer, int32_t vocab_size)
{
    const struct bpe_pipeline *pipeline = tokenizer_pipeline(tokenizer);
    const bool before = pipeline->normalizer.before != BPE_MARK_NEVER ||
                        pipeline->pretokenizer.before != BPE_MARK_NEVER;
    const int32_t unknown = bpe_special_find(tokenizer->bpe, UNKNOWN_TEXT);
    head->failed = scores_put(head, tokenizer->bpe, vocab_size) != GT_OK;
    key(head, "tokenizer.ggml.add_space_prefix", GGUF_BOOL, &before, 1);
    if (unknown >= 0)
        key_u32(head, "tokenizer.ggml.unknown_token_id", unknown);
}

/* Puts the first two further tokens that end a text; there are no keys for more. */
static void further_ends_put(struct head *head, int32_t end)
{
    static const char *const keys[] = {GGUF_KEY_EOT, GGUF_KEY_EOM};
    int64_t id;
    for (size_t i = 0, put = 0; put < sizeof keys / sizeof keys[0]; i++) {
        id = tokenizer_generation_id(head->generation, "eos_token_id", i);
        if (id < 0)
            return;
        if (id != end)
            key_u32(head, keys[put++], (int32_t)id);
    }
}

/* Puts the tokenizer.ggml.* keys; the model has at least as many rows as the tokenizer has tokens.
 */
static void tokens_put(const struct export_options *options, struct head *head)
{
    const struct tokenizer *tokenizer = options->tokenizer;
    const int32_t vocab_size = options->checkpoint->config.vocab_size,
                  end = export_end_token(options);
    const int32_t eot = tokenizer != NULL ? tokenizer_eot(tokenizer) : -1;
    const int32_t bos = tokenizer_pipeline(tokenizer)->bos;
    struct text text;
    if (tokenizer == NULL || !tokenizer_can_merge(tokenizer)) {
        key_string(head, "tokenizer.ggml.model", "none");
        return;
    }
    const bool characters = has_characters(tokenizer);
    key_string(head, "tokenizer.ggml.model", characters ? "llama" : "gpt2");
    key_string(head, "tokenizer.ggml.pre",
               characters ? "default" : bpe_splits[tokenizer_pipeline(tokenizer)->split].ggml);
    key_array(head, "tokenizer.ggml.tokens", GGUF_STRING, (uint64_t)vocab_size);
    for (int32_t id = 0; id < vocab_size; id++) {
        (void)token_text(tokenizer, id, &text);
        put_string(head, text.bytes, text.count);
    }
    key_array(head, "tokenizer.ggml.token_type", GGUF_INT32, (uint64_t)vocab_size);
    for (int32_t id = 0; id < vocab_size; id++)
        put_u32(head, (uint32_t)token_text(tokenizer, id, &text));
    if (characters)
        characters_put(head, tokenizer, vocab_size);
    else
        merges_write(head, tokenizer);
    key(head, "tokenizer.ggml.add_bos_token", GGUF_BOOL, &(bool){bos >= 0}, 1);
    if (bos >= 0 || eot >= 0)
        key_u32(head, "tokenizer.ggml.bos_token_id", bos >= 0 ? bos : eot);
    if (end >= 0)
        key_u32(head, "tokenizer.ggml.eos_token_id", end);
    further_ends_put(head, end);
    if (tokenizer_generation_id(head->generation, "pad_token_id", 0) >= 0)
        key_u32(head, "tokenizer.ggml.padding_token_id",
                (int32_t)tokenizer_generation_id(head->generation, "pad_token_id", 0));
    if (chat_jinja_learnt(tokenizer) != NULL)
        key_string(head, GGUF_KEY_TEMPLATE, chat_jinja_learnt(tokenizer));
}

/* Puts the base's sampling settings, if it has any: as llama.cpp's keys, and as one object for our
 * own reader. */
static void generation_put(const struct export_options *options, struct head *head)
{
    char *text = NULL;
    if (options->tokenizer == NULL || options->tokenizer->generation == NULL)
        return;
    for (size_t i = 0; i < GGUF_SAMPLING_KEYS; i++) {
        const json_t *value = json_object_get(head->generation, gguf_sampling[i].field);
        if (json_is_number(value) && gguf_sampling[i].type == GGUF_FLOAT32)
            key_f32(head, gguf_sampling[i].key, json_number_value(value));
        else if (json_is_number(value))
            key(head, gguf_sampling[i].key, GGUF_INT32,
                &(int32_t){(int32_t)json_number_value(value)}, 4);
    }
    if (json_text(head->generation, 0, "", &text) == GT_OK)
        key_string(head, GGUF_KEY_GENERATION, text);
    free(text);
}

static void tokens_log(const struct tokenizer *tokenizer)
{
    if (tokenizer == NULL)
        log_note(
            "the model has no tokenizer, so the file has none; llama.cpp will take token ids only");
    else if (!tokenizer_can_merge(tokenizer))
        log_note(
            "the tokenizer has ranks but no merges, which GGUF needs; the file has no tokenizer");
    else if (tokenizer_eot(tokenizer) < 0)
        log_note(
            "the tokenizer has no end-of-text token; llama.cpp would take token 11, so run it with --ignore-eos");
}

/* ---- the file ---- */
/* The type of most tensors, as general.file_type. */
static int32_t file_type(const struct export_options *options)
{
    if (options->mixture != GGUF_NO_MIXTURE)
        return gguf_mixture_file_type(options->mixture);
    return options->dtype == DTYPE_F32 ? 0 : options->dtype == DTYPE_F16 ? 1 : 32;
}

static bool is_adapter(const struct export_options *options)
{
    return options->format == EXPORT_GGUF_LORA;
}

static bool has_divisors(const struct model_config *config)
{
    return !model_is_gpt2(config) && config->rope.scaling == ROPE_SCALING_LLAMA3;
}

/* Returns the names of the tensors of divisors of frequencies; NULL comes last. */
static const char *const *divisors_names(const struct model_config *config)
{
    static const char *const names[] = {"rope_freqs.weight", NULL, GGUF_LONG_DIVISORS,
                                        GGUF_SHORT_DIVISORS, NULL};
    return names + (has_divisors(config)                            ? 0
                    : config->rope.scaling == ROPE_SCALING_LONGROPE ? 2
                                                                    : 1);
}

/* Returns the part of rope_scaling that llama.cpp cannot read, or NULL. */
static const char *scaling_lacks(const struct model_config *config, const struct arch *arch)
{
    const struct rope_config *rope = &config->rope;
    if (has_divisors(config) && !arch->gguf_divisors)
        return "rope_scaling='llama3:...'";
    if (rope->scaling == ROPE_SCALING_LONGROPE && arch != arch_get(ARCH_phi3))
        return "rope_scaling='longrope:...'";
    if (rope->scaling == ROPE_SCALING_DYNAMIC)
        return "rope_scaling='dynamic:...'";
    char text[ROPE_SCALING_TEXT_MAX];
    const bool usual =
        rope->scaling != ROPE_SCALING_YARN ||
        strcmp(rope_scaling_text(text, rope),
               TEXT(64, "yarn:%.15g,%" PRId32, rope->factor, rope->original_context)) == 0;
    return usual ? NULL : "rope_scaling='yarn:...' with more than a factor and a context";
}

/* Returns the property of a Gemma 3 that llama.cpp does not compute, or NULL. */
static const char *layers_lack(const struct model_config *config)
{
    if (config->sliding_window == 0 || config->max_window_layers != 0 ||
        config->sliding_window_pattern != GGUF_WINDOW_PATTERN)
        return "a sliding_window in other layers than five of six";
    if (config->rope_local_theta != GGUF_LOCAL_THETA)
        return "a rope_local_theta other than 1e4";
    const double size = model_head_dim(config),
                 scalar = config->query_pre_attn_scalar > 0 ? config->query_pre_attn_scalar : size,
                 computed =
                     gguf_scores_divisor(config->n_layer, config->n_embd, config->n_head, size);
    if (scalar == computed)
        return NULL;
    return computed == size ? "a query_pre_attn_scalar other than head_dim"
                            : "a query_pre_attn_scalar other than n_embd / n_head";
}

const char *export_gguf_lacks(const struct model_config *config, char text[static HF_LACKS_MAX])
{
    const struct arch *arch = arch_of(&config->shape);
    const char *lacks = hf_config_lacks(config, text), *what = NULL;
    if (lacks != NULL)
        return lacks;
    if (scaling_lacks(config, arch) != NULL)
        what = scaling_lacks(config, arch);
    else if (arch->gguf_whole_heads && model_attention_width(config) != config->n_embd)
        what = "a head_dim other than n_embd / n_head";
    else if (config->no_rope_layer_interval > 0 &&
             config->no_rope_layer_interval != GGUF_ROPE_INTERVAL)
        what = "a no_rope_layer_interval other than 4";
    else if (arch->window == WINDOW_BY_LAYER)
        what = layers_lack(config);
    else if (config->sliding_window > 0 && arch->window != WINDOW_ALWAYS &&
             arch->window != WINDOW_GIVEN)
        what = "sliding_window";
    if (what == NULL && !model_is_gpt2(config) && config->mlp != arch->shape.mlp)
        what = "this mlp";
    if (what == NULL)
        return NULL;
    (void)snprintf(text, HF_LACKS_MAX, "%s in %s's blocks", what, arch->name);
    return text;
}

/* Puts the key of a property, and the keys that follow from it. */
static void property_put(const struct model_config *config, const struct shape *shape,
                         enum shape_property property, struct head *head)
{
    const struct shape_row *row = shape_row_get(property);
    const char *name = arch_gguf_key(arch_of(shape), property);
    const double value = shape_get(shape, property);
    if (name != NULL && row->type == SHAPE_TYPE_REAL)
        key_f32(head, name, value);
    else if (name != NULL)
        key_u32(head, name, (int32_t)value);
    if (property == SHAPE_n_layer)
        key_u32(head, ".context_length", model_positions(config));
    if (property != SHAPE_head_dim || name == NULL)
        return;
    key_u32(head, ".attention.value_length", shape->head_dim);
    key_u32(head, ".rope.dimension_count", model_turned_dim(config));
}

/* Puts the keys of a scaling, as llama.cpp's converter names them. */
static void scaling_put(const struct model_config *config, struct head *head)
{
    const struct rope_config *rope = &config->rope;
    if (config->position != POSITION_ROPE)
        return;
    if (rope->scaling == ROPE_SCALING_LONGROPE) {
        key_u32(head, GGUF_KEY_ORIGINAL, rope->original_context);
        key_f32(head, GGUF_KEY_ATTENTION, rope->attention_factor);
    }
    if (rope->scaling != ROPE_SCALING_LINEAR && rope->scaling != ROPE_SCALING_YARN)
        return;
    const bool yarn = rope->scaling == ROPE_SCALING_YARN;
    key_string(head, ".rope.scaling.type", yarn ? "yarn" : "linear");
    key_f32(head, ".rope.scaling.factor", rope->factor);
    if (yarn)
        key_u32(head, GGUF_KEY_ORIGINAL, rope->original_context);
}

/* Puts the other keys that llama.cpp needs for a gated delta net.  The sections divide a head's
 * pairs among kinds of positions, which are all equal in text. */
static void delta_put(const struct model_config *config, struct head *head)
{
    static const uint32_t sections[] = {11, 11, 10, 0}; /* conversion/qwen.py, _Qwen35MRopeMixin */
    const int32_t values = config->linear_num_value_heads * config->linear_value_head_dim;
    if (config->full_attention_interval == 0)
        return;
    key_u32(head, ".ssm.inner_size", values);
    key_array(head, ".rope.dimension_sections", GGUF_INT32, 4);
    for (size_t i = 0; i < 4; i++)
        put_u32(head, sections[i]);
}

/* Puts the keys of the shape in the order of earlier releases; those of later properties follow. */
static void shape_put(const struct model_config *config, struct head *head)
{
    static const enum shape_property first[] = {
        SHAPE_vocab_size,   SHAPE_n_layer,   SHAPE_n_embd,   SHAPE_n_inner,   SHAPE_n_head,
        SHAPE_norm_epsilon, SHAPE_n_kv_head, SHAPE_head_dim, SHAPE_rope_theta};
    bool done[SHAPE_PROPERTIES] = {false};
    struct shape shape = config->shape;
    shape_sizes_fill(&shape);
    for (size_t i = 0; i < sizeof first / sizeof first[0]; i++) {
        property_put(config, &shape, first[i], head);
        done[first[i]] = true;
    }
    for (int p = 0; p < SHAPE_PROPERTIES; p++)
        if (!done[p])
            property_put(config, &shape, (enum shape_property)p, head);
    if (has_divisors(config)) /* rope_freqs.weight does not determine all of it */
        key_string(head, GGUF_KEY_SCALING,
                   rope_scaling_text((char[ROPE_SCALING_TEXT_MAX]){0}, &config->rope));
    if (config->sliding_window > 0)
        key_u32(head, GGUF_KEY_WINDOW, config->sliding_window);
    delta_put(config, head);
    scaling_put(config, head);
}

/* Puts the model's name. llama.cpp treats a name with "phi3" specially. */
static void name_put(const struct export_options *options, struct head *head)
{
    const char *given = options->name;
    const bool phi3 = options->tokenizer != NULL && options->tokenizer->bpe != NULL &&
                      gguf_has_phi3(options->tokenizer->bpe);
    char name[2 * FILE_PATH_MAX] = "";
    size_t count = 0;
    for (const char *from = given; *from != '\0'; from++) {
        const bool digit = from[from[0] == '-'] == '3';
        if (!phi3 && digit && count >= 3 && strncasecmp(name + count - 3, "phi", 3) == 0) {
            name[count++] = ' ';
            from += *from == '-';
        }
        name[count++] = *from;
    }
    const bool add = phi3 && !gguf_is_phi3(given, strlen(given));
    (void)snprintf(name + count, sizeof name - count, "%s", add ? " (phi3)" : "");
    key_string(head, "general.name", name);
}

static void keys_put(const struct export_options *options, struct head *head)
{
    const struct model_config *config = &options->checkpoint->config;
    key_string(head, "general.architecture", head->architecture);
    key_string(head, "general.type", is_adapter(options) ? "adapter" : "model");
    name_put(options, head);
    key_u32(head, "general.file_type", file_type(options));
    if (options->mixture != GGUF_NO_MIXTURE)
        key_u32(head, "general.quantization_version", QUANTIZATION_VERSION);
    key_u32(head, "general.alignment", GGUF_ALIGNMENT);
    if (is_adapter(options)) { /* the rest is in the model's file */
        key_string(head, "adapter.type", "lora");
        key_f32(head, "adapter.lora.alpha", config->lora.alpha);
        return;
    }
    shape_put(config, head);
    tokens_put(options, head);
    generation_put(options, head);
}

/* Returns true if the file has the embedding a second time, as the output layer.  If only old
 * readers need the copy, quantised files omit it: their readers are newer, and the copy would be
 * most of a small file. */
static bool has_copy(const struct export_options *options)
{
    const struct model_config *config = &options->checkpoint->config;
    const int need = arch_of(&config->shape)->gguf_output;
    const bool old = need == GGUF_OUTPUT_ONCE && options->mixture == GGUF_NO_MIXTURE;
    return !config->untied && (old || need == GGUF_OUTPUT_NEEDED);
}

static size_t entry_count(const struct export_options *options)
{
    const struct model_config *config = &options->checkpoint->config;
    const char *const *names = divisors_names(config);
    size_t extra = has_copy(options) ? 1 : 0;
    while (*names++ != NULL)
        extra++;
    return parameters_file_count(config) + (is_adapter(options) ? 0 : extra);
}

/* Sets the type of a tensor: the one of the options for matrices, float32 for vectors and the
 * position table. */
static void entry_type(const struct export_options *options, struct entry *entry)
{
    const struct parameter_shape *source = &entry->source;
    const struct model_config *config = &options->checkpoint->config;
    const char *name = entry->form.name;
    struct gguf_matrix matrix = {
        .name = name, .blocks = config->n_layer, .columns = (size_t)entry->form.dims[0]};
    entry->type =
        source->rank == 1 || source->position_table ? GGML_F32 : ggml_type_of(options->dtype);
    entry->wanted = entry->type;
    if (options->mixture == GGUF_NO_MIXTURE || entry->type == GGML_F32)
        return;
    (void)sscanf(name, "blk.%" SCNd32 ".", &matrix.block);
    matrix.output = strcmp(name, "output.weight") == 0 || (!config->untied && !has_copy(options) &&
                                                           strcmp(name, "token_embd.weight") == 0);
    entry->type = gguf_mixture_type(options->mixture, &matrix, &entry->wanted);
}

static void entry_get(const struct export_options *options, size_t index, struct entry *out)
{
    const struct model_config *config = &options->checkpoint->config;
    const size_t count = parameters_file_count(config);
    const bool extra = index >= count, copy = index == count && has_copy(options);
    *out = (struct entry){.divisors = 0};
    if (extra && !copy)
        out->divisors = (int)(index - count) + !has_copy(options);
    parameters_file_shape(config, extra ? 0 : index, &out->source);
    gguf_form_get(config, &out->source, &out->form);
    if (copy) {
        (void)snprintf(out->form.name, sizeof out->form.name, "output.weight");
    } else if (extra) {
        out->source = (struct parameter_shape){.rank = 1, .dims = {model_turned_dim(config) / 2}};
        out->form = (struct gguf_form){.rank = 1, .dims = {out->source.dims[0]}};
        (void)snprintf(out->form.name, sizeof out->form.name, "%s",
                       divisors_names(config)[out->divisors - 1]);
    }
    out->source.linear =
        out->source.linear && model_is_gpt2(config); /* only Conv1D's weights are transposed */
    entry_type(options, out);
    out->size_bytes = ggml_bytes(out->type, parameter_elements(&out->source));
}

static void info_put(const struct entry *entry, uint64_t offset, struct head *head)
{
    const struct gguf_form *form = &entry->form;
    put_string(head, form->name, strlen(form->name));
    put_u32(head, (uint32_t)form->rank);
    for (int32_t i = 0; i < form->rank; i++)
        put_u64(head, (uint64_t)form->dims[i]);
    put_u32(head, ggml_blocks[entry->type].number);
    put_u64(head, offset);
}

static void head_put(const struct export_options *options, struct head *head)
{
    static const char zeros[GGUF_ALIGNMENT];
    const size_t count = entry_count(options);
    size_t offset = 0;
    put(head, GGUF_MAGIC, 4);
    put_u32(head, GGUF_VERSION);
    put_u64(head, count);
    put_u64(head, 0); /* the number of keys: head_make() */
    keys_put(options, head);
    for (size_t i = 0; i < count; i++) {
        struct entry entry;
        entry_get(options, i, &entry);
        info_put(&entry, offset, head);
        offset += size_round_up(entry.size_bytes, GGUF_ALIGNMENT);
    }
    const size_t end = (size_t)ftell(head->stream);
    put(head, zeros, size_round_up(end, GGUF_ALIGNMENT) - end);
}

/* Makes everything before the data, to be released with free(). */
static enum gt_status head_make(const struct export_options *options, char **out, size_t *out_count)
{
    const struct arch *arch = arch_of(&options->checkpoint->config.shape);
    struct head head = {.architecture = arch_gguf_name(arch)};
    TRY(export_generation_make(options, &head.generation));
    head.stream = open_memstream(out, out_count);
    bool failed = head.stream == NULL;
    if (!failed) {
        head_put(options, &head);
        failed = ferror(head.stream) != 0 || head.failed;
        failed = fclose(head.stream) != 0 || failed;
    }
    json_decref(head.generation);
    if (failed)
        return FAIL(GT_NO_MEMORY, "out of memory: the keys of a GGUF file could not be made");
    memcpy(*out + KEYS_AT, &head.keys, sizeof head.keys);
    return GT_OK;
}

/* Writes the divisors that llama.cpp applies to the pairs' frequencies. */
static enum gt_status divisors_write(const struct model_config *config, bool longer,
                                     struct file_replacement *file)
{
    for (int32_t i = 0; i < model_turned_dim(config) / 2; i++) {
        const float divisor = config->rope.scaling == ROPE_SCALING_LONGROPE
                                  ? config->rope.divisors[longer][i]
                                  : gguf_rope_divisor(config, i);
        TRY(file_replacement_write(file, &divisor, sizeof divisor));
    }
    return GT_OK;
}

/* Logs which tensors have rows that a mixture's blocks do not divide, and the type used instead. */
static void mixture_log(const struct export_options *options)
{
    struct entry entry, first;
    size_t others = 0;
    for (size_t i = 0; i < entry_count(options); i++) {
        entry_get(options, i, &entry);
        if (entry.type != entry.wanted && others++ == 0)
            first = entry;
    }
    if (others == 0)
        return;
    log_note("%s%s: rows of %" PRId64
             " values are not a whole number of blocks of %s, so %s is used",
             first.form.name, others > 1 ? TEXT(48, " and %zu more tensors", others - 1) : "",
             first.form.dims[0], ggml_blocks[first.wanted].name, ggml_blocks[first.type].name);
}

static enum gt_status data_write(const struct export_options *options,
                                 const struct export_weights *weights,
                                 struct file_replacement *file, struct progress *progress)
{
    const struct model_config *config = &options->checkpoint->config;
    const size_t count = entry_count(options);
    const int64_t start_ns = clock_monotonic_ns();
    for (size_t i = 0; i < count; i++) {
        struct entry entry;
        const double seconds = (double)(clock_monotonic_ns() - start_ns) * 1e-9;
        progress_show(progress, "export", (int64_t)i, (int64_t)count, "",
                      i > 0 ? seconds * (double)(count - i) / (double)i : -1.0);
        entry_get(options, i, &entry);
        if (entry.divisors > 0)
            TRY(divisors_write(config, entry.divisors == 1, file));
        else
            TRY(export_weights_write(weights, &entry.source, &entry.form.file, entry.type, file));
        TRY(export_zeros_write(file,
                               size_round_up(entry.size_bytes, GGUF_ALIGNMENT) - entry.size_bytes));
    }
    return GT_OK;
}

enum gt_status export_gguf_write(const struct export_options *options,
                                 const struct export_weights *weights)
{
    char *head = NULL;
    size_t head_bytes = 0;
    struct file_replacement file;
    struct progress progress;
    if (options->checkpoint->config.mlp == MLP_GELU &&
        options->checkpoint->config.gelu != GELU_TANH)
        log_warning(
            "the model was trained with gelu=erf, but llama.cpp computes tanh; logits will differ slightly");
    if (options->checkpoint->config.sliding_window > 0 &&
        arch_of(&options->checkpoint->config.shape)->window != WINDOW_BY_LAYER)
        log_warning("llama.cpp ignores sliding_window=%" PRId32
                    " of this architecture: after longer texts its tokens will differ",
                    options->checkpoint->config.sliding_window);
    if (!is_adapter(options))
        tokens_log(options->tokenizer);
    mixture_log(options);
    enum gt_status status = head_make(options, &head, &head_bytes);
    THEN(status, file_replacement_begin(&file, options->output, NULL));
    if (status == GT_OK) {
        status = file_replacement_write(&file, head, head_bytes);
        progress_init(&progress);
        THEN(status, data_write(options, weights, &file, &progress));
        progress_clear(&progress);
        status = file_replacement_end(&file, status);
    }
    free(head);
    return status;
}
