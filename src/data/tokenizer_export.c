/* A bpe tokenizer as Hugging Face's files.
 *
 * tokenizer.json is complete by itself; vocab.json and merges.txt are the older pair, which the GPT-2 classes of
 * transformers read.  Texts are in GPT-2's alphabet, special tokens in plain text.
 */
#include "data/tokenizer_export.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/log.h"
#include "data/bpe.h"
#include "data/bpe_alphabet.h"
#include "data/tokenizer_bpe.h"

static const char *const names[] = {"tokenizer.json", "vocab.json", "merges.txt"};
_Static_assert(sizeof names / sizeof names[0] == TOKENIZER_EXPORT_COUNT, "a name for every file");

const char *tokenizer_export_name(enum tokenizer_export file)
{
    assert((size_t)file < TOKENIZER_EXPORT_COUNT);
    return names[file];
}

bool tokenizer_export_possible(const struct tokenizer *tokenizer, enum tokenizer_export file)
{
    const struct bpe *bpe = tokenizer_bpe(tokenizer);
    return bpe != NULL && bpe_rank_of(bpe) == BPE_RANK_MERGE &&
           (file == TOKENIZER_EXPORT_JSON || bpe_pipeline_of(bpe)->json == NULL);
}

/* This and the functions below return NULL when out of memory. */
static json_t *vocab_json(const struct bpe *bpe, bool specials)
{
    json_t *vocab = json_object();
    int failures = 0;
    for (size_t id = 0; id < bpe_vocab_size(bpe); id++) {
        if (!specials && bpe_is_special(bpe, (int32_t)id))
            continue;
        json_t *text = tokenizer_bpe_token(bpe, (int32_t)id);
        const char *key = json_string_value(text);
        failures |= key == NULL || json_object_set_new(vocab, key, json_integer((json_int_t)id)) != 0;
        json_decref(text);
    }
    return json_whole(vocab, failures);
}

/* Writes "LEFT RIGHT" and a terminator; returns the length. */
static size_t merge_text(const struct bpe *bpe, const struct bpe_merge *merge,
                         char out[static 4 * BPE_TOKEN_BYTES_MAX + 2])
{
    const char *bytes = NULL;
    size_t count = bpe_token(bpe, merge->left, &bytes);
    size_t length = bpe_alphabet_write(bytes, count, out);
    out[length++] = ' ';
    count = bpe_token(bpe, merge->right, &bytes);
    length += bpe_alphabet_write(bytes, count, out + length);
    out[length] = '\0';
    return length;
}

static json_t *merges_json(const struct bpe *bpe)
{
    char text[4 * BPE_TOKEN_BYTES_MAX + 2];
    size_t count = 0;
    const struct bpe_merge *merges = bpe_merges(bpe, &count);
    json_t *list = json_array();
    int failures = 0;
    for (size_t i = 0; i < count; i++) {
        const size_t length = merge_text(bpe, &merges[i], text);
        failures |= json_array_append_new(list, json_stringn(text, length));
    }
    return json_whole(list, failures);
}

static json_t *added_json(const struct bpe *bpe)
{
    size_t count = 0;
    const int32_t *specials = bpe_specials(bpe, &count);
    json_t *list = json_array();
    int failures = 0;
    for (size_t i = 0; i < count; i++)
        failures |=
            json_array_append_new(list, json_pack("{s:i, s:o, s:b, s:b, s:b, s:b, s:b}", "id", specials[i], "content",
                                                  tokenizer_bpe_token(bpe, specials[i]), "single_word", 0, "lstrip", 0,
                                                  "rstrip", 0, "normalized", 0, "special", 1));
    return json_whole(list, failures);
}

/* Returns the tokenizer.json that was read: its pipeline, with vocabulary and merges. */
static json_t *pipeline_json(const struct bpe *bpe)
{
    json_t *root = json_loads(bpe_pipeline_of(bpe)->json, 0, NULL), *model = json_object_get(root, "model");
    json_t *vocab = vocab_json(bpe, false);
    int failures = json_object_update(vocab, json_object_get(model, "vocab"));
    failures |= json_object_set_new(model, "vocab", vocab);
    failures |= json_object_set_new(model, "merges", merges_json(bpe));
    return json_whole(root, failures);
}

static json_t *all_json(const struct bpe *bpe)
{
    if (bpe_pipeline_of(bpe)->json != NULL)
        return pipeline_json(bpe);
    json_t *model =
        json_pack("{s:s, s:n, s:n, s:n, s:n, s:b, s:b, s:b, s:o, s:o}", "type", "BPE", "dropout", "unk_token",
                  "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk", 0, "byte_fallback", 0, "ignore_merges",
                  0, "vocab", vocab_json(bpe, true), "merges", merges_json(bpe));
    json_t *split = json_pack("{s:s, s:b, s:b, s:b}", "type", "ByteLevel", "add_prefix_space", 0, "trim_offsets", 1,
                              "use_regex", 1);
    /* When an argument is NULL, json_pack() releases the others and fails. */
    return json_pack("{s:s, s:n, s:n, s:o, s:n, s:O, s:n, s:o, s:o}", "version", "1.0", "truncation", "padding",
                     "added_tokens", added_json(bpe), "normalizer", "pre_tokenizer", split, "post_processor", "decoder",
                     split, "model", model);
}

static enum gt_status out_of_memory(const struct bpe *bpe, enum tokenizer_export file)
{
    log_error("out of memory: %s of %zu tokens", names[file], bpe_vocab_size(bpe));
    return GT_NO_MEMORY;
}

static enum gt_status merges_txt(const struct bpe *bpe, char **out, size_t *out_count)
{
    char line[4 * BPE_TOKEN_BYTES_MAX + 2], *text = NULL;
    size_t count = 0, size_bytes = 0;
    const struct bpe_merge *merges = bpe_merges(bpe, &count);
    FILE *stream = open_memstream(&text, &size_bytes);
    bool failed = stream == NULL || fputs("#version: 0.2\n", stream) < 0;
    for (size_t i = 0; i < count && !failed; i++) {
        merge_text(bpe, &merges[i], line);
        failed = fprintf(stream, "%s\n", line) < 0;
    }
    failed = (stream != NULL && fclose(stream) != 0) || failed;
    if (failed) {
        free(text);
        return out_of_memory(bpe, TOKENIZER_EXPORT_MERGES);
    }
    *out = text;
    *out_count = size_bytes;
    return GT_OK;
}

enum gt_status tokenizer_export_text(const struct tokenizer *tokenizer, enum tokenizer_export file, char **out,
                                     size_t *out_count)
{
    assert(tokenizer_export_possible(tokenizer, file));
    const struct bpe *bpe = tokenizer_bpe(tokenizer);
    if (file == TOKENIZER_EXPORT_MERGES)
        return merges_txt(bpe, out, out_count);
    json_t *root = file == TOKENIZER_EXPORT_VOCAB ? vocab_json(bpe, true) : all_json(bpe);
    if (root == NULL)
        return out_of_memory(bpe, file);
    const enum gt_status status = json_text(root, 0, out);
    json_decref(root);
    if (status == GT_OK)
        *out_count = strlen(*out);
    return status;
}
