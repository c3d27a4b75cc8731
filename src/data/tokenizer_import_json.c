/* Hugging Face's tokenizer.json, and maps of texts to ids.
 *
 * Of the many tokenizers that tokenizer.json can describe, only one kind is accepted: BPE over bytes with GPT-2's
 * split, without normalisation and without options that change ids.  Each field that could change ids is checked, and
 * the error names it.  Added tokens must be special, because ordinary text never becomes one.
 */
#include "data/tokenizer_import_json.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/log.h"
#include "data/bpe_alphabet.h"
#include "data/tokenizer_import.h"

/* ---- a map of texts to ids ---- */

struct vocab_reading {
    const char *path;
    const json_t *vocab; /* from text to id */
    const json_t *added; /* tokenizer.json's list, or NULL */
    size_t id_count;     /* ids are below this */
    struct bpe *bpe;
};

/* Returns the added token with this text, or NULL. */
static const json_t *added_find(const json_t *added, const char *text)
{
    for (size_t i = 0; i < json_array_size(added); i++) {
        const json_t *token = json_array_get(added, i);
        if (strcmp(json_string_value(json_object_get(token, "content")), text) == 0)
            return token;
    }
    return NULL;
}

static enum gt_status token_refuse(const struct vocab_reading *reading, const char *text, const char *what)
{
    log_error("%s: the token \"%.*s\": %s", reading->path, 64, text, what);
    return GT_DATA;
}

static enum gt_status token_put(struct vocab_reading *reading, const char *text, const json_t *id_value, bool special)
{
    const json_int_t id = json_is_integer(id_value) ? json_integer_value(id_value) : -1;
    char bytes[2 * BPE_TOKEN_BYTES_MAX];
    size_t count = strlen(text);
    if (id < 0 || id >= (json_int_t)reading->id_count) {
        log_error("%s: the token \"%.*s\": the id is no number from 0 to %zu, which the number of tokens allows",
                  reading->path, 64, text, reading->id_count - 1);
        return GT_DATA;
    }
    if (count == 0 || count > sizeof bytes)
        return token_refuse(reading, text, "expected 1 to 1024 bytes");
    if (special)
        memcpy(bytes, text, count);
    else if (!bpe_alphabet_read(text, count, bytes, &count))
        return token_refuse(reading, text, "has a character that is not of GPT-2's alphabet of bytes");
    switch (bpe_add_token(reading->bpe, (int32_t)id, bytes, count, special)) {
    case BPE_ADDED:
        return GT_OK;
    case BPE_ID_TAKEN:
        return token_refuse(reading, text, "another token has its id");
    case BPE_TEXT_TAKEN:
        return token_refuse(reading, text, "is there twice");
    case BPE_TEXT_BAD:
        break;
    }
    return token_refuse(reading, text, "expected 1 to 1024 bytes");
}

/* Adds the vocabulary except the added tokens, which added_put() adds. */
static enum gt_status vocab_put(struct vocab_reading *reading)
{
    const char *text = NULL;
    json_t *id = NULL;
    json_t *vocab = (json_t *)reading->vocab; /* jansson's iteration needs a non-const pointer but changes nothing */
    json_object_foreach(vocab, text, id)
    {
        const bool special = reading->added == NULL && strcmp(text, BPE_EOT_TEXT) == 0;
        if (reading->added == NULL || added_find(reading->added, text) == NULL)
            TRY(token_put(reading, text, id, special));
    }
    return GT_OK;
}

static enum gt_status added_put(struct vocab_reading *reading)
{
    for (size_t i = 0; i < json_array_size(reading->added); i++) {
        const json_t *token = json_array_get(reading->added, i), *id = json_object_get(token, "id");
        const char *text = json_string_value(json_object_get(token, "content"));
        const json_t *inside = json_object_get(reading->vocab, text);
        if (inside != NULL && !json_equal(inside, id))
            return token_refuse(reading, text, "its id in \"added_tokens\" is not that in \"vocab\"");
        TRY(token_put(reading, text, id, true));
    }
    return GT_OK;
}

static enum gt_status vocab_build(struct hostmem *mem, struct vocab_reading *reading, size_t merge_count)
{
    size_t text_bytes = 0;
    const char *text = NULL;
    json_t *id = NULL;
    json_t *vocab = (json_t *)reading->vocab;
    reading->id_count = json_object_size(vocab);
    json_object_foreach(vocab, text, id) text_bytes += strlen(text);
    for (size_t i = 0; i < json_array_size(reading->added); i++) {
        const char *content = json_string_value(json_object_get(json_array_get(reading->added, i), "content"));
        text_bytes += strlen(content);
        reading->id_count += json_object_get(vocab, content) == NULL;
    }
    if (reading->id_count == 0 || reading->id_count > BPE_VOCAB_MAX || text_bytes > BPE_TEXT_BYTES_MAX) {
        log_error("%s: %zu tokens of %zu bytes; expected 256 to %d tokens", reading->path, reading->id_count,
                  text_bytes, BPE_VOCAB_MAX);
        return GT_DATA;
    }
    const struct bpe_spec spec = {
        .vocab_size = reading->id_count, .text_bytes = text_bytes, .merge_count = merge_count, .rank = BPE_RANK_MERGE};
    TRY(bpe_create(mem, &spec, &reading->bpe));
    TRY(vocab_put(reading));
    return added_put(reading);
}

enum gt_status tokenizer_import_vocab(struct hostmem *mem, const char *text, size_t count, const char *path,
                                      size_t merge_count, struct bpe **out)
{
    json_t *root = NULL;
    TRY(json_parse(text, count, path, &root));
    struct vocab_reading reading = {.path = path, .vocab = root};
    enum gt_status status = GT_DATA;
    if (json_is_object(root))
        status = vocab_build(mem, &reading, merge_count);
    else
        log_error("%s: expected an object of tokens and ids", path);
    json_decref(root);
    if (status == GT_OK)
        *out = reading.bpe;
    else
        bpe_destroy(reading.bpe);
    return status;
}

/* ---- tokenizer.json: required fields ---- */

static enum gt_status field_refuse(const char *path, const char *field, const json_t *value, const char *expected)
{
    char *text = value != NULL ? json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;
    log_error("%s: field \"%s\": %.60s; only %s can be read", path, field, text != NULL ? text : "missing", expected);
    free(text);
    return GT_UNSUPPORTED;
}

static bool is_absent(const json_t *value)
{
    return value == NULL || json_is_null(value);
}

static bool is_text(const json_t *value, const char *text)
{
    return json_is_string(value) && strcmp(json_string_value(value), text) == 0;
}

/* Checks the fields of "model" that change ids; they must be absent, null, false or empty. */
static enum gt_status model_check(const json_t *model, const char *path)
{
    static const char *const fields[] = {
        "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback", "ignore_merges"};
    char name[64];
    const json_t *type = json_object_get(model, "type");
    if (!json_is_object(model) || (!is_absent(type) && !is_text(type, "BPE")))
        return field_refuse(path, "model.type", type, "\"BPE\"");
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        const json_t *value = json_object_get(model, fields[i]);
        if (is_absent(value) || json_is_false(value) || is_text(value, ""))
            continue;
        (void)snprintf(name, sizeof name, "model.%s", fields[i]);
        return field_refuse(path, name, value, "null");
    }
    return GT_OK;
}

static enum gt_status split_check(const json_t *root, const char *path)
{
    const json_t *normalizer = json_object_get(root, "normalizer");
    const json_t *split = json_object_get(root, "pre_tokenizer");
    const json_t *after = json_object_get(root, "post_processor");
    const json_t *prefix = json_object_get(split, "add_prefix_space"), *regex = json_object_get(split, "use_regex");
    if (!is_absent(normalizer))
        return field_refuse(path, "normalizer", normalizer, "null");
    if (!json_is_object(split) || !is_text(json_object_get(split, "type"), "ByteLevel"))
        return field_refuse(path, "pre_tokenizer", split, "\"ByteLevel\"");
    if (!json_is_false(prefix))
        return field_refuse(path, "pre_tokenizer.add_prefix_space", prefix, "false");
    if (!is_absent(regex) && !json_is_true(regex))
        return field_refuse(path, "pre_tokenizer.use_regex", regex, "true");
    if (!is_absent(after) && !is_text(json_object_get(after, "type"), "ByteLevel"))
        return field_refuse(path, "post_processor", after, "null or \"ByteLevel\"");
    return GT_OK;
}

static enum gt_status added_check(const json_t *added, const char *path)
{
    static const char *const fields[] = {"lstrip", "rstrip", "single_word"};
    if (!is_absent(added) && (!json_is_array(added) || json_array_size(added) > 1024))
        return field_refuse(path, "added_tokens", added, "a list of at most 1024");
    for (size_t i = 0; i < json_array_size(added); i++) {
        const json_t *token = json_array_get(added, i);
        if (!json_is_string(json_object_get(token, "content")))
            return field_refuse(path, "added_tokens.content", token, "text");
        if (!json_is_true(json_object_get(token, "special")))
            return field_refuse(path, "added_tokens.special", token, "true");
        for (size_t k = 0; k < sizeof fields / sizeof fields[0]; k++)
            if (json_is_true(json_object_get(token, fields[k])))
                return field_refuse(path, "added_tokens", token, "lstrip, rstrip and single_word false");
    }
    return GT_OK;
}

/* ---- tokenizer.json: merges ---- */

/* "LEFT RIGHT" or, since tokenizers 0.20, ["LEFT", "RIGHT"]. */
static bool merge_put(struct bpe *bpe, const json_t *merge)
{
    const char *left = json_string_value(json_is_array(merge) ? json_array_get(merge, 0) : merge);
    const char *right = json_is_array(merge) ? json_string_value(json_array_get(merge, 1)) : NULL;
    if (left == NULL || (json_is_array(merge) && (right == NULL || json_array_size(merge) != 2)))
        return false;
    size_t left_count = strlen(left);
    if (right == NULL) {
        left_count = strcspn(left, " ");
        if (left[left_count] == '\0')
            return false;
        right = left + left_count + 1;
    }
    const int32_t left_id = bpe_find_written(bpe, left, left_count),
                  right_id = bpe_find_written(bpe, right, strlen(right));
    return left_id >= 0 && right_id >= 0 && bpe_add_merge(bpe, left_id, right_id);
}

static enum gt_status merges_put(struct bpe *bpe, const json_t *merges, const char *path)
{
    for (size_t i = 0; i < json_array_size(merges); i++)
        if (!merge_put(bpe, json_array_get(merges, i))) {
            log_error("%s: field \"model.merges\": entry %zu: expected two tokens of the vocabulary that make a third",
                      path, i);
            return GT_DATA;
        }
    return bpe_finish(bpe, path);
}

static enum gt_status json_import(struct hostmem *mem, const json_t *root, const char *path, struct bpe **out)
{
    const json_t *model = json_object_get(root, "model"), *added = json_object_get(root, "added_tokens");
    const json_t *vocab = json_object_get(model, "vocab"), *merges = json_object_get(model, "merges");
    TRY(model_check(model, path));
    TRY(split_check(root, path));
    TRY(added_check(added, path));
    if (!json_is_object(vocab) || !json_is_array(merges) || json_array_size(merges) > BPE_MERGES_MAX) {
        log_error("%s: field \"model\": expected \"vocab\", an object, and \"merges\", a list of at most %d", path,
                  BPE_MERGES_MAX);
        return GT_DATA;
    }
    struct vocab_reading reading = {.path = path, .vocab = vocab, .added = json_is_array(added) ? added : json_array()};
    enum gt_status status = vocab_build(mem, &reading, json_array_size(merges));
    if (!json_is_array(added))
        json_decref((json_t *)reading.added);
    if (status == GT_OK)
        status = merges_put(reading.bpe, merges, path);
    if (status == GT_OK)
        *out = reading.bpe;
    else
        bpe_destroy(reading.bpe);
    return status;
}

enum gt_status tokenizer_import_json(struct hostmem *mem, const char *text, size_t count, const char *path,
                                     struct tokenizer **out)
{
    json_t *root = NULL;
    struct bpe *bpe = NULL;
    TRY(json_parse(text, count, path, &root));
    const enum gt_status status = json_import(mem, root, path, &bpe);
    json_decref(root);
    return status == GT_OK ? tokenizer_create_bpe(mem, bpe, out) : status;
}
