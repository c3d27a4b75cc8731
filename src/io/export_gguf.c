/* Writes GPT-2 as a GGUF file: keys, list of tensors, data.
 *
 * Keys and list are made in memory and written at once.  Tensors are in the model's order, followed by the output
 * layer, a copy of the embedding that old versions of llama.cpp need.  llama.cpp computes the tanh form of GELU, so a
 * model trained with the erf form is written with a warning.  Source: ggml's docs/gguf.md, version 3.
 *
 * The tokenizer becomes llama.cpp's "gpt2" tokenizer, a byte-level BPE.  Kind bpe maps to it directly.  Kind bytes is a
 * vocabulary of 256 without merges.  Kind chars becomes a BPE too: each multi-byte character gets the merges that build
 * it, which llama.cpp applies without requiring tokens for the intermediate strings; a byte that is not a character has
 * no token.  Rows of the model beyond the vocabulary become unused tokens, because llama.cpp takes the number of rows
 * from this list.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/size.h"
#include "data/bpe.h"
#include "data/bpe_alphabet.h"
#include "data/tokenizer_export.h"
#include "io/export.h"
#include "io/export_weights.h"

#define NAME_MAX_BYTES 64
#define OUTSIDE_BEFORE 2 /* wte, wpe */
#define PER_LAYER 12
#define CHARACTER_BYTES_MAX 4
#define VERSION 3
#define ALIGNMENT 32
#define KEYS_AT 16 /* where the number of keys is */

/* Constants of the format. */
enum type { TYPE_UINT32 = 4, TYPE_INT32 = 5, TYPE_FLOAT32 = 6, TYPE_BOOL = 7, TYPE_STRING = 8, TYPE_ARRAY = 9 };
enum token { TOKEN_NORMAL = 1, TOKEN_CONTROL = 3, TOKEN_UNUSED = 5 };

/* Everything before the data, in memory. */
struct head {
    FILE *stream;
    uint64_t keys;
    size_t size_bytes;
};

/* A tensor of the file. */
struct entry {
    struct parameter_shape source;
    char name[NAME_MAX_BYTES];
    enum dtype dtype;
    size_t size_bytes;
};

/* ---- little-endian numbers, counted strings, keys with typed values ---- */
static void put(struct head *head, const void *bytes, size_t count)
{
    head->size_bytes += count;
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

static void key(struct head *head, const char *name, enum type type, const void *value, size_t count)
{
    head->keys++;
    put_string(head, name, strlen(name));
    put_u32(head, (uint32_t)type);
    put(head, value, count);
}

static void key_u32(struct head *head, const char *name, int32_t value)
{
    key(head, name, TYPE_UINT32, &value, sizeof value);
}

static void key_string(struct head *head, const char *name, const char *text)
{
    key(head, name, TYPE_STRING, NULL, 0);
    put_string(head, text, strlen(text));
}

/* Begins an array; the caller then puts `count` elements of `type`. */
static void key_array(struct head *head, const char *name, enum type type, uint64_t count)
{
    key(head, name, TYPE_ARRAY, NULL, 0);
    put_u32(head, (uint32_t)type);
    put_u64(head, count);
}

/* ---- the tokenizer ---- */
struct text {
    size_t count;
    char bytes[2 * BPE_TOKEN_BYTES_MAX + 1];
};

/* Returns false without a tokenizer, and for a vocabulary with ranks but no merges (tiktoken's). */
static bool tokens_possible(const struct tokenizer *tokenizer)
{
    return tokenizer != NULL && (tokenizer_kind_of(tokenizer) != TOKENIZER_BPE || tokenizer_export_possible(tokenizer));
}

/* Gives the token's text in the file; returns its type. */
static enum token token_text(const struct tokenizer *tokenizer, int32_t id, struct text *out)
{
    char scratch[CHARACTER_BYTES_MAX];
    const char *bytes = NULL;
    const struct bpe *bpe = tokenizer_bpe(tokenizer);
    if (id >= tokenizer_vocab_size(tokenizer)) {
        out->count = (size_t)snprintf(out->bytes, sizeof out->bytes, "[PAD%" PRId32 "]", id);
        return TOKEN_UNUSED;
    }
    const size_t count = tokenizer_token_bytes(tokenizer, id, scratch, &bytes);
    if (bpe != NULL && bpe_is_special(bpe, id)) {
        memcpy(out->bytes, bytes, count);
        out->count = count;
        return TOKEN_CONTROL;
    }
    out->count = bpe_alphabet_write(bytes, count, out->bytes);
    return TOKEN_NORMAL;
}

static void pair_write(struct head *head, const char *left, size_t left_count, const char *right, size_t right_count)
{
    char line[4 * BPE_TOKEN_BYTES_MAX + 1];
    size_t length = bpe_alphabet_write(left, left_count, line);
    line[length++] = ' ';
    length += bpe_alphabet_write(right, right_count, line + length);
    put_string(head, line, length);
}

static void bpe_merges_write(struct head *head, const struct bpe *bpe)
{
    size_t count = 0;
    const struct bpe_merge *merges = bpe_merges(bpe, &count);
    key_array(head, "tokenizer.ggml.merges", TYPE_STRING, count);
    for (size_t i = 0; i < count; i++) {
        const char *left = NULL, *right = NULL;
        const size_t left_count = bpe_token(bpe, merges[i].left, &left);
        const size_t right_count = bpe_token(bpe, merges[i].right, &right);
        pair_write(head, left, left_count, right, right_count);
    }
}

/* Writes the merges of all characters; with a NULL writer it only counts them.  Returns their number.  Characters
 * ascend, so those with a common prefix are adjacent, and a merge is new unless the previous character has it too. */
static uint64_t character_merges(struct head *head, const struct tokenizer *tokenizer)
{
    char before[CHARACTER_BYTES_MAX] = {0};
    uint64_t merges = 0;
    for (int32_t id = 0; id < tokenizer_vocab_size(tokenizer); id++) {
        char scratch[CHARACTER_BYTES_MAX] = {0};
        const char *bytes = NULL;
        const size_t count = tokenizer_token_bytes(tokenizer, id, scratch, &bytes);
        for (size_t end = 2; end <= count; end++) {
            if (memcmp(before, bytes, end) == 0)
                continue;
            merges++;
            if (head != NULL)
                pair_write(head, bytes, end - 1, bytes + end - 1, 1);
        }
        memset(before, 0, sizeof before);
        memcpy(before, bytes, count);
    }
    return merges;
}

static void merges_write(struct head *head, const struct tokenizer *tokenizer)
{
    const struct bpe *bpe = tokenizer_bpe(tokenizer);
    if (bpe != NULL) {
        bpe_merges_write(head, bpe);
        return;
    }
    const bool characters = tokenizer_kind_of(tokenizer) == TOKENIZER_CHARS;
    key_array(head, "tokenizer.ggml.merges", TYPE_STRING, characters ? character_merges(NULL, tokenizer) : 0);
    if (characters)
        (void)character_merges(head, tokenizer);
}

/* Puts the tokenizer.ggml.* keys for a model of `vocab_size` rows, at least the tokenizer's. */
static void tokens_put(struct head *head, const struct tokenizer *tokenizer, int32_t vocab_size)
{
    struct text text;
    if (!tokens_possible(tokenizer)) {
        key_string(head, "tokenizer.ggml.model", "none");
        return;
    }
    key_string(head, "tokenizer.ggml.model", "gpt2");
    key_string(head, "tokenizer.ggml.pre", "gpt-2");
    key_array(head, "tokenizer.ggml.tokens", TYPE_STRING, (uint64_t)vocab_size);
    for (int32_t id = 0; id < vocab_size; id++) {
        (void)token_text(tokenizer, id, &text);
        put_string(head, text.bytes, text.count);
    }
    key_array(head, "tokenizer.ggml.token_type", TYPE_INT32, (uint64_t)vocab_size);
    for (int32_t id = 0; id < vocab_size; id++)
        put_u32(head, (uint32_t)token_text(tokenizer, id, &text));
    merges_write(head, tokenizer);
    key(head, "tokenizer.ggml.add_bos_token", TYPE_BOOL, &(bool){false}, 1);
    if (tokenizer_eot(tokenizer) < 0)
        return;
    key_u32(head, "tokenizer.ggml.bos_token_id", tokenizer_eot(tokenizer));
    key_u32(head, "tokenizer.ggml.eos_token_id", tokenizer_eot(tokenizer));
}

static void tokens_log(const struct tokenizer *tokenizer)
{
    if (tokenizer == NULL)
        log_note("the model has no tokenizer, so the file has none; llama.cpp will take token ids only");
    else if (!tokens_possible(tokenizer))
        log_note("the tokenizer has ranks but no merges, which GGUF needs; the file has no tokenizer");
    else if (tokenizer_eot(tokenizer) < 0)
        log_note("the tokenizer has no end-of-text token; llama.cpp would take token 11, so run it with --ignore-eos");
}

/* ---- the file ---- */
/* ggml's number for a dtype: F32 0, F16 1, BF16 30 in the list of tensors and 32 in general.file_type. */
static int32_t dtype_number(enum dtype dtype, int32_t of_bf16)
{
    return dtype == DTYPE_F32 ? 0 : dtype == DTYPE_F16 ? 1 : of_bf16;
}

static void keys_put(const struct export_options *options, struct head *head)
{
    const struct model_config *config = &options->checkpoint->config;
    key_string(head, "general.architecture", "gpt2");
    key_string(head, "general.type", "model");
    key_string(head, "general.name", options->name);
    key_u32(head, "general.file_type", dtype_number(options->dtype, 32));
    key_u32(head, "general.alignment", ALIGNMENT);
    key_u32(head, "gpt2.vocab_size", config->vocab_size);
    key_u32(head, "gpt2.block_count", config->n_layer);
    key_u32(head, "gpt2.context_length", config->block_size);
    key_u32(head, "gpt2.embedding_length", config->n_embd);
    key_u32(head, "gpt2.feed_forward_length", 4 * config->n_embd);
    key_u32(head, "gpt2.attention.head_count", config->n_head);
    const float epsilon = (float)config->norm_epsilon;
    key(head, "gpt2.attention.layer_norm_epsilon", TYPE_FLOAT32, &epsilon, sizeof epsilon);
    tokens_put(head, options->tokenizer, config->vocab_size);
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
static void info_put(const struct entry *entry, uint64_t offset, struct head *head)
{
    const struct parameter_shape *source = &entry->source;
    const bool linear = source->linear;
    put_string(head, entry->name, strlen(entry->name));
    put_u32(head, (uint32_t)source->rank);
    if (source->rank == 2)
        put_u64(head, (uint64_t)source->dims[linear ? 0 : 1]);
    put_u64(head, (uint64_t)source->dims[linear ? 1 : 0]);
    put_u32(head, (uint32_t)dtype_number(entry->dtype, 30));
    put_u64(head, offset);
}

static enum gt_status head_put(const struct export_options *options, struct head *head)
{
    static const char zeros[ALIGNMENT];
    const size_t count = entry_count(&options->checkpoint->config);
    size_t offset = 0;
    put(head, "GGUF", 4);
    put_u32(head, VERSION);
    put_u64(head, count);
    put_u64(head, 0); /* the number of keys: head_make() */
    keys_put(options, head);
    for (size_t i = 0; i < count; i++) {
        struct entry entry;
        TRY(entry_get(options, i, &entry));
        info_put(&entry, offset, head);
        offset += size_round_up(entry.size_bytes, ALIGNMENT);
    }
    put(head, zeros, size_round_up(head->size_bytes, ALIGNMENT) - head->size_bytes);
    return GT_OK;
}

/* Makes everything before the data, to be released with free(). */
static enum gt_status head_make(const struct export_options *options, char **out, size_t *out_count)
{
    struct head head = {.keys = 0};
    head.stream = open_memstream(out, out_count);
    enum gt_status status = head.stream != NULL ? head_put(options, &head) : GT_NO_MEMORY;
    const bool has_failed = head.stream == NULL || ferror(head.stream);
    if (head.stream != NULL && fclose(head.stream) == 0 && !has_failed) {
        memcpy(*out + KEYS_AT, &head.keys, sizeof head.keys);
        return status;
    }
    log_error("out of memory: the keys of a GGUF file could not be made");
    return GT_NO_MEMORY;
}

static enum gt_status data_write(const struct export_options *options, const struct export_weights *weights,
                                 struct file_replacement *file)
{
    for (size_t i = 0; i < entry_count(&options->checkpoint->config); i++) {
        struct entry entry;
        TRY(entry_get(options, i, &entry));
        TRY(export_weights_write(weights, &entry.source, entry.dtype, file));
        TRY(export_zeros_write(file, size_round_up(entry.size_bytes, ALIGNMENT) - entry.size_bytes));
    }
    return GT_OK;
}

enum gt_status export_gguf_write(const struct export_options *options, const struct export_weights *weights)
{
    char *head = NULL;
    size_t head_bytes = 0;
    struct file_replacement file;
    if (options->checkpoint->config.gelu != GELU_TANH)
        log_warning("the model was trained with gelu=erf, but llama.cpp computes tanh; logits will differ slightly");
    tokens_log(options->tokenizer);
    enum gt_status status = head_make(options, &head, &head_bytes);
    if (status == GT_OK)
        status = file_replacement_begin(&file, options->output);
    if (status == GT_OK) {
        status = file_replacement_write(&file, head, head_bytes);
        if (status == GT_OK)
            status = data_write(options, weights, &file);
        status = file_replacement_end(&file, status);
    }
    free(head);
    return status;
}
