/* Reads the tokenizer of a GGUF file: makes the tokenizer.json that corresponds to its keys, and
 * reads that.
 *
 * Supported are llama.cpp's "gpt2" tokenizers, byte-level BPE with the splits that are known here,
 * and its "llama" tokenizers, SentencePiece's BPE, whose files have scores of tokens instead of
 * merges.  Properties without a key are those of Hugging Face's tokenizers with that split: Qwen2's
 * normalizes to form C, and Llama 3's prefers a token that is the whole piece to merges.  A "llama"
 * tokenizer puts a mark before each text, as Llama 2's does.  Merges follow from scores as in
 * transformers' generate_merges(): every two tokens that form a token are a merge, higher scores
 * first.  Unused tokens at the end pad the model's table and are left out.
 */
#include "io/gguf_tokenizer.h"

#include <math.h>
#include <strings.h>

#include "base/json.h"
#include "data/bpe.h"
#include "data/bpe_marks.h"
#include "data/tokenizer_generation.h"
#include "data/tokenizer_import.h"

const struct gguf_sampling gguf_sampling[GGUF_SAMPLING_KEYS] = {
    {"temperature", "general.sampling.temp", GGUF_FLOAT32},
    {"top_k", "general.sampling.top_k", GGUF_INT32},
    {"top_p", "general.sampling.top_p", GGUF_FLOAT32},
    {"min_p", "general.sampling.min_p", GGUF_FLOAT32},
    {"repetition_penalty", "general.sampling.penalty_repeat", GGUF_FLOAT32},
};

/* Phi 3's special tokens that keep the white space after them. */
static const char *const phi3_plain[] = {"<unk>", "<s>", "<|endoftext|>"};

bool gguf_is_phi3(const char *name, size_t count)
{
    bool found = false;
    for (size_t i = 0; i + 4 <= count && !found; i++)
        found =
            strncasecmp(name + i, "phi", 3) == 0 &&
            (name[i + 3] == '3' || (name[i + 3] == '-' && i + 5 <= count && name[i + 4] == '3'));
    return found;
}

bool gguf_phi3_eats(const char *token, size_t count)
{
    for (size_t i = 0; i < sizeof phi3_plain / sizeof phi3_plain[0]; i++)
        if (count == strlen(phi3_plain[i]) && memcmp(token, phi3_plain[i], count) == 0)
            return false;
    return true;
}

bool gguf_has_phi3(const struct bpe *bpe)
{
    for (size_t i = 0; i < sizeof phi3_plain / sizeof phi3_plain[0]; i++)
        if (bpe_special_find(bpe, phi3_plain[i]) < 0)
            return false;
    const int32_t end = bpe_special_find(bpe, "</s>");
    return end >= 0 && bpe_strip_of(bpe, end).right;
}

struct vocabulary {
    const struct gguf *gguf;
    const struct gguf_key *tokens, *types, *merges; /* or scores, if "llama" */
    bool characters;
    size_t count; /* tokens without unused ones at the end */
};

static int32_t type_of(const struct vocabulary *vocabulary, size_t id)
{
    if (vocabulary->types == NULL)
        return GGUF_TOKEN_NORMAL;
    return (int32_t)le_read(vocabulary->gguf->bytes + vocabulary->types->at + 4 * id, 4);
}

static enum gt_status vocabulary_find(const struct gguf *gguf, bool characters,
                                      struct vocabulary *out)
{
    const char *last = characters ? "scores" : "merges";
    struct vocabulary found = {.gguf = gguf,
                               .tokens = gguf_key_find(gguf, "tokenizer.ggml.tokens"),
                               .types = gguf_key_find(gguf, "tokenizer.ggml.token_type"),
                               .merges = gguf_key_find(gguf, TEXT(64, "tokenizer.ggml.%s", last)),
                               .characters = characters};
    const bool texts = found.tokens != NULL && found.tokens->type == GGUF_ARRAY &&
                       found.tokens->element == GGUF_STRING && found.tokens->count <= INT32_MAX;
    const bool merges = found.merges != NULL && found.merges->type == GGUF_ARRAY &&
                        found.merges->element == (characters ? GGUF_FLOAT32 : GGUF_STRING) &&
                        (!characters || (texts && found.merges->count == found.tokens->count));
    const bool types = found.types == NULL || (texts && found.types->type == GGUF_ARRAY &&
                                               found.types->element == GGUF_INT32 &&
                                               found.types->count == found.tokens->count);
    if (!texts || !merges || !types)
        return FAIL(GT_DATA, "%s: key tokenizer.ggml.%s: is missing, or not such a list",
                    gguf->path,
                    !texts    ? "tokens"
                    : !merges ? last
                              : "token_type");
    found.count = (size_t)found.tokens->count;
    while (found.count > 0 && type_of(&found, found.count - 1) == GGUF_TOKEN_UNUSED)
        found.count--;
    *out = found;
    return GT_OK;
}

static json_t *vocab_make(const struct vocabulary *vocabulary, json_t *added)
{
    json_t *vocab = json_object();
    size_t at = vocabulary->tokens->at, count;
    int failures = 0;
    const char *name;
    size_t name_count;
    const bool phi3 = gguf_text(vocabulary->gguf, "general.name", &name, &name_count) &&
                      gguf_is_phi3(name, name_count);
    for (size_t id = 0; id < vocabulary->count; id++) {
        const char *text;
        gguf_next_text(vocabulary->gguf, &at, &text, &count);
        const int32_t type = type_of(vocabulary, id);
        const bool control = type == GGUF_TOKEN_CONTROL || type == GGUF_TOKEN_UNKNOWN;
        const bool special = control || type == GGUF_TOKEN_USER_DEFINED;
        json_t *entry = special ? json_pack("{s:i, s:s%, s:b, s:b, s:b, s:b, s:b}", "id", (int)id,
                                            "content", text, count, "single_word", 0, "lstrip", 0,
                                            "rstrip", (int)(phi3 && gguf_phi3_eats(text, count)),
                                            "normalized", 0, "special", (int)control)
                                : NULL;
        failures |= special
                        ? json_array_append_new(added, entry)
                        : json_object_setn_new(vocab, text, count, json_integer((json_int_t)id));
    }
    return json_whole(vocab, failures);
}

static json_t *merges_make(const struct vocabulary *vocabulary)
{
    json_t *merges = json_array();
    size_t at = vocabulary->merges->at, count;
    int failures = 0;
    for (uint64_t i = 0; i < vocabulary->merges->count; i++) {
        const char *text;
        gguf_next_text(vocabulary->gguf, &at, &text, &count);
        failures |= json_array_append_new(merges, json_stringn(text, count));
    }
    return json_whole(merges, failures);
}

/* ---- merges of scores ---- */

/* Two tokens that form a third. */
struct pair {
    const char *text; /* of the third */
    size_t left_bytes, right_bytes;
    int32_t left, right; /* characters */
    float score;
    int32_t id; /* of the third */
};

static size_t characters_of(const char *text, size_t count)
{
    size_t characters = 0;
    for (size_t i = 0; i < count; i++)
        characters += ((unsigned char)text[i] & 0xC0) != 0x80;
    return characters;
}

static int sign_of(double difference)
{
    return (difference > 0.0) - (difference < 0.0);
}

static int pair_compare(const void *one, const void *other)
{
    const struct pair *a = one, *b = other;
    const int order[] = {sign_of((double)b->score - (double)a->score), sign_of(b->left - a->left),
                         sign_of(b->right - a->right), sign_of(a->id - b->id)};
    int i = 0;
    while (i < 3 && order[i] == 0)
        i++;
    return order[i];
}

/* Adds the pairs that form a token to out[], which may be NULL; returns their number. */
static size_t pairs_of(const json_t *vocab, const struct pair *token, size_t bytes,
                       struct pair *out)
{
    size_t count = 0;
    for (size_t at = 1; at < bytes; at++) {
        if (((unsigned char)token->text[at] & 0xC0) == 0x80 ||
            json_object_getn(vocab, token->text, at) == NULL ||
            json_object_getn(vocab, token->text + at, bytes - at) == NULL)
            continue;
        if (out != NULL) {
            out[count] = *token;
            out[count].left_bytes = at;
            out[count].right_bytes = bytes - at;
            out[count].left = (int32_t)characters_of(token->text, at);
            out[count].right = (int32_t)characters_of(token->text + at, bytes - at);
        }
        count++;
    }
    return count;
}

/* Lists the pairs of all tokens of the vocabulary; out[] may be NULL.  Returns their number. */
static size_t pairs_list(const struct vocabulary *vocabulary, const json_t *vocab, struct pair *out)
{
    size_t at = vocabulary->tokens->at, bytes, count = 0;
    for (size_t id = 0; id < vocabulary->count; id++) {
        const uint32_t bits =
            (uint32_t)le_read(vocabulary->gguf->bytes + vocabulary->merges->at + 4 * id, 4);
        struct pair token = {.id = (int32_t)id};
        gguf_next_text(vocabulary->gguf, &at, &token.text, &bytes);
        memcpy(&token.score, &bits, sizeof token.score);
        if (type_of(vocabulary, id) == GGUF_TOKEN_NORMAL)
            count += pairs_of(vocab, &token, bytes, out != NULL ? out + count : NULL);
    }
    return count;
}

/* Makes merges as transformers' generate_merges() does. */
static json_t *merges_of_scores(const struct vocabulary *vocabulary, const json_t *vocab)
{
    const size_t count = pairs_list(vocabulary, vocab, NULL);
    struct pair *pairs = malloc((count + 1) * sizeof *pairs);
    json_t *merges = json_array();
    int failures = pairs == NULL;
    if (pairs != NULL) {
        (void)pairs_list(vocabulary, vocab, pairs);
        qsort(pairs, count, sizeof *pairs, pair_compare);
    }
    for (size_t i = 0; i < count && !failures; i++)
        failures |= json_array_append_new(
            merges, json_pack("[s%, s%]", pairs[i].text, pairs[i].left_bytes,
                              pairs[i].text + pairs[i].left_bytes, pairs[i].right_bytes));
    free(pairs);
    return json_whole(merges, failures);
}

/* ---- tokenizer.json ---- */

static json_t *byte_level(bool splits)
{
    return json_pack("{s:s, s:b, s:b, s:b}", "type", "ByteLevel", "add_prefix_space", 0,
                     "trim_offsets", 1, "use_regex", (int)splits);
}

static json_t *steps_make(enum bpe_split split)
{
    json_t *first;
    if (split == BPE_SPLIT_GPT2)
        return byte_level(true);
    if (bpe_splits[split].regex != NULL)
        first = json_pack("{s:s, s:{s:s}, s:s, s:b}", "type", "Split", "pattern", "Regex",
                          bpe_splits[split].regex, "behavior", "Isolated", "invert", 0);
    else
        first = json_pack("{s:s, s:b}", "type", "Digits", "individual_digits", 1);
    return json_pack("{s:s, s:[o, o]}", "type", "Sequence", "pretokenizers", first,
                     byte_level(split == BPE_SPLIT_SMOLLM));
}

/* Returns a template that begins a text with `bos`, or NULL. */
static json_t *post_make(const char *bos, size_t bos_bytes, int64_t id)
{
    if (bos == NULL)
        return byte_level(true);
    json_t *pair = json_pack("[{s:{s:s%, s:i}}, {s:{s:s, s:i}}]", "SpecialToken", "id", bos,
                             bos_bytes, "type_id", 0, "Sequence", "id", "A", "type_id", 0);
    json_t *token = json_pack("{s:s%, s:[I], s:[s%]}", "id", bos, bos_bytes, "ids", (json_int_t)id,
                              "tokens", bos, bos_bytes);
    json_t *specials = json_object();
    if (token == NULL || json_object_setn_new(specials, bos, bos_bytes, token) != 0)
        json_decref(token);
    return json_pack("{s:s, s:o, s:[], s:o}", "type", "TemplateProcessing", "single", pair, "pair",
                     "special_tokens", specials);
}

/* Returns the text of the token that begins a text, or NULL. */
static const char *bos_find(const struct vocabulary *vocabulary, int64_t *id, size_t *count)
{
    const struct gguf *gguf = vocabulary->gguf;
    int64_t adds = vocabulary->characters; /* if the key is absent */
    const char *text = NULL;
    size_t at = vocabulary->tokens->at;
    (void)gguf_integer(gguf, "tokenizer.ggml.add_bos_token", &adds);
    if (adds == 0 || !gguf_integer(gguf, "tokenizer.ggml.bos_token_id", id) || *id < 0 ||
        *id >= (int64_t)vocabulary->count)
        return NULL;
    for (int64_t i = 0; i <= *id; i++)
        gguf_next_text(gguf, &at, &text, count);
    return text;
}

static enum gt_status split_find(const struct gguf *gguf, enum bpe_split *out)
{
    const char *text = "";
    size_t count = 0;
    (void)gguf_text(gguf, "tokenizer.ggml.pre", &text, &count);
    for (int i = 0; i < BPE_SPLIT_COUNT; i++) {
        if (strlen(bpe_splits[i].ggml) == count && memcmp(bpe_splits[i].ggml, text, count) == 0) {
            *out = (enum bpe_split)i;
            return GT_OK;
        }
    }
    return FAIL(
        GT_UNSUPPORTED,
        "%s: key tokenizer.ggml.pre: \"%.*s\" is not supported; name a tokenizer with --tokenizer",
        gguf->path, (int)(count < 32 ? count : 32), text);
}

/* Reads the text of a tokenizer.json, which it releases with `root`. */
static enum gt_status root_import(const void *owner, const struct gguf *gguf, json_t *root,
                                  struct tokenizer **out)
{
    char *text = root != NULL ? json_dumps(root, JSON_COMPACT) : NULL;
    json_decref(root);
    if (text == NULL)
        return FAIL(GT_DATA,
                    "%s: the vocabulary has texts that are not UTF-8, or there is no memory for it",
                    gguf->path);
    const struct tokenizer_source source = {
        .path = gguf->path, .text = text, .count = strlen(text)};
    const enum gt_status status = tokenizer_import_json(owner, &source, out);
    free(text);
    return status;
}

/* Returns the list of the tokens that end a text, if there are more than eos_token_id. */
static json_t *ends_make(const struct gguf *gguf)
{
    static const char *const keys[] = {"tokenizer.ggml.eos_token_id", GGUF_KEY_EOT, GGUF_KEY_EOM};
    json_t *list = json_array();
    int64_t id;
    int failures = 0;
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (gguf_integer(gguf, keys[i], &id) && id >= 0)
            failures |= json_array_append_new(list, json_integer(id));
    return json_whole(list, failures);
}

/* Makes the steps of Llama 2's tokenizer.json.  With `before`, texts begin with a mark. */
static json_t *marks_make(bool before)
{
    json_t *spaces = json_pack("{s:s, s:{s:s}, s:s}", "type", "Replace", "pattern", "String", " ",
                               "content", BPE_MARK);
    if (!before)
        return spaces;
    return json_pack("{s:s, s:[{s:s, s:s}, o]}", "type", "Sequence", "normalizers", "type",
                     "Prepend", "prepend", BPE_MARK, spaces);
}

static json_t *marks_decoder(bool before)
{
    return json_pack("{s:s, s:[{s:s, s:{s:s}, s:s}, {s:s}, {s:s}, {s:s, s:s, s:i, s:i}]}", "type",
                     "Sequence", "decoders", "type", "Replace", "pattern", "String", BPE_MARK,
                     "content", " ", "type", "ByteFallback", "type", "Fuse", "type", "Strip",
                     "content", " ", "start", (int)before, "stop", 0);
}

static enum gt_status tokenizer_make(const void *owner, const struct gguf *gguf, bool characters,
                                     struct tokenizer **out)
{
    struct vocabulary vocabulary;
    enum bpe_split split = BPE_SPLIT_MARKS;
    size_t bos_bytes = 0;
    int64_t bos_id = -1, before = 1;
    TRY(vocabulary_find(gguf, characters, &vocabulary));
    if (!characters)
        TRY(split_find(gguf, &split));
    (void)gguf_integer(gguf, "tokenizer.ggml.add_space_prefix", &before);
    const char *bos = bos_find(&vocabulary, &bos_id, &bos_bytes);
    const bool nfc = split == BPE_SPLIT_QWEN2 || split == BPE_SPLIT_QWEN35;
    json_t *added = json_array(), *vocab = vocab_make(&vocabulary, added);
    json_t *merges = characters ? merges_of_scores(&vocabulary, vocab) : merges_make(&vocabulary);
    json_t *normalizer = characters ? marks_make(before != 0)
                         : nfc      ? json_pack("{s:s}", "type", "NFC")
                                    : json_null();
    return root_import(owner, gguf,
                       json_pack("{s:s, s:o, s:o, s:o, s:o, s:o, s:{s:s, s:b, s:b, s:b, s:o, s:o}}",
                                 "version", "1.0", "added_tokens", added, "normalizer", normalizer,
                                 "pre_tokenizer", characters ? json_null() : steps_make(split),
                                 "post_processor", post_make(bos, bos_bytes, bos_id), "decoder",
                                 characters ? marks_decoder(before != 0) : byte_level(true),
                                 "model", "type", "BPE", "ignore_merges",
                                 (int)(split == BPE_SPLIT_LLAMA3), "byte_fallback", (int)characters,
                                 "fuse_unk", (int)characters, "vocab", vocab, "merges", merges),
                       out);
}

/* Makes a generation_config.json from the keys of other programs' files. */
static json_t *generation_make(const struct gguf *gguf)
{
    json_t *root = json_object();
    int64_t integer;
    double real;
    int failures = 0;
    if (gguf_integer(gguf, GGUF_KEY_EOT, &integer) || gguf_integer(gguf, GGUF_KEY_EOM, &integer))
        failures |= json_object_set_new(root, "eos_token_id", ends_make(gguf));
    for (size_t i = 0; i < GGUF_SAMPLING_KEYS; i++) {
        if (gguf_integer(gguf, gguf_sampling[i].key, &integer))
            failures |= json_object_set_new(root, gguf_sampling[i].field, json_integer(integer));
        else if (gguf_real(gguf, gguf_sampling[i].key, &real) && isfinite(real))
            failures |= json_object_set_new(root, gguf_sampling[i].field, json_real(real));
    }
    if (gguf_integer(gguf, "tokenizer.ggml.padding_token_id", &integer))
        failures |= json_object_set_new(root, "pad_token_id", json_integer(integer));
    return json_whole(root, failures);
}

static enum gt_status template_read(const struct gguf *gguf, struct tokenizer *tokenizer)
{
    const char *text;
    size_t count;
    if (!gguf_text(gguf, GGUF_KEY_TEMPLATE, &text, &count) || count == 0)
        return GT_OK;
    tokenizer->has_template = true;
    if (tokenizer->template != NULL || tokenizer->chat != CHAT_NONE)
        return GT_OK;
    json_t *value = json_stringn(text, count); /* NULL: not UTF-8 */
    const enum gt_status status =
        value != NULL ? tokenizer_template_set(tokenizer, json_string_value(value)) : GT_OK;
    json_decref(value);
    return status;
}

/* Gives the tokenizer its model's chat template and sampling settings. */
static enum gt_status model_texts_read(const struct gguf *gguf, struct tokenizer *tokenizer)
{
    const char *text;
    size_t count;
    json_t *value = NULL;
    json_error_t error;
    TRY(template_read(gguf, tokenizer));
    if (tokenizer->generation != NULL)
        return GT_OK;
    if (gguf_text(gguf, GGUF_KEY_GENERATION, &text, &count) && count <= GENERATION_BYTES_MAX)
        (void)json_load(text, count, 0, &error, &value);
    if (!json_is_object(value)) {
        json_decref(value);
        value = generation_make(gguf);
    }
    const enum gt_status status = tokenizer_generation_set(tokenizer, value);
    json_decref(value);
    return status;
}

enum gt_status gguf_template_read(const char *path, struct tokenizer *tokenizer)
{
    struct gguf *gguf;
    TRY(gguf_open(tokenizer, path, &gguf));
    const enum gt_status status = model_texts_read(gguf, tokenizer);
    hostmem_free(gguf);
    return status;
}

enum gt_status gguf_has_template(const void *owner, const char *path, bool *out)
{
    struct gguf *gguf;
    const char *text;
    size_t count;
    TRY(gguf_open(owner, path, &gguf));
    *out = gguf_text(gguf, GGUF_KEY_TEMPLATE, &text, &count) && count > 0;
    hostmem_free(gguf);
    return GT_OK;
}

static bool is_word(const char *text, size_t count, const char *word)
{
    return strlen(word) == count && memcmp(text, word, count) == 0;
}

enum gt_status gguf_tokenizer_open(const void *owner, const char *path, struct tokenizer **out)
{
    struct gguf *gguf;
    struct tokenizer *tokenizer = NULL;
    const char *model = "";
    size_t count = 0;
    TRY(gguf_open(owner, path, &gguf));
    (void)gguf_text(gguf, "tokenizer.ggml.model", &model, &count);
    enum gt_status status = GT_OK;
    if (is_word(model, count, "gpt2") || is_word(model, count, "llama"))
        status = tokenizer_make(owner, gguf, is_word(model, count, "llama"), &tokenizer);
    else if (count > 0 && !is_word(model, count, "none"))
        log_note("%s: its tokenizer, \"%.*s\", is not supported; byte-level BPE "
                 "and SentencePiece's BPE are",
                 path, (int)(count < 32 ? count : 32), model);
    if (status == GT_OK && tokenizer != NULL)
        status = model_texts_read(gguf, tokenizer);
    hostmem_free(gguf);
    return FINISH(status, out, tokenizer, hostmem_free);
}
