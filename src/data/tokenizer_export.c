/* Writes tokenizers in Hugging Face's formats.
 *
 * tokenizer.json is complete by itself; vocab.json and merges.txt are the older pair, which the
 * GPT-2 classes of transformers read.  Texts are in GPT-2's alphabet, special tokens in plain text.
 * Kind bytes is a BPE of 256 tokens. Kind chars becomes a BPE with no merges, no split and a
 * decoder that concatenates, so that the `tokenizers` library looks up each character.  It drops a
 * character that is not in the vocabulary, whereas our own tokenizer rejects the text.
 */

#include "data/tokenizer_export.h"

#include "base/json.h"
#include "data/bpe.h"
#include "data/chat.h"
#include "data/tokenizer_bpe.h"
#include "data/tokenizer_generation.h"

const char *const tokenizer_file_names[TOKENIZER_FILES] = {
    [TOKENIZER_FILE_CONFIG] = "tokenizer_config.json",
    [TOKENIZER_FILE_OURS] = TOKENIZER_FILE_NAME,
    [TOKENIZER_FILE_JSON] = "tokenizer.json",
    [TOKENIZER_FILE_VOCAB] = "vocab.json",
    [TOKENIZER_FILE_MERGES] = "merges.txt"};

bool tokenizer_can_merge(const struct tokenizer *tokenizer)
{
    const struct bpe *bpe = tokenizer->bpe;
    return bpe == NULL || bpe->rank == BPE_RANK_MERGE;
}

static bool file_exists_for(const struct tokenizer *tokenizer, enum tokenizer_file file)
{
    if (file == TOKENIZER_FILE_CONFIG || file == TOKENIZER_FILE_OURS)
        return true;
    return tokenizer_can_merge(tokenizer) &&
           (file == TOKENIZER_FILE_JSON ||
            (tokenizer->kind != TOKENIZER_CHARS && tokenizer_pipeline(tokenizer)->json == NULL));
}

/* ---- parts; the functions return NULL when out of memory ---- */

static json_t *token_json(const struct tokenizer *tokenizer, int32_t id)
{
    char scratch[4], text[2 * sizeof scratch];
    const char *bytes = NULL;
    if (tokenizer->bpe != NULL)
        return tokenizer_bpe_token(tokenizer->bpe, id);
    const size_t count = tokenizer_token_bytes(tokenizer, id, scratch, &bytes);
    if (tokenizer->kind == TOKENIZER_CHARS)
        return json_stringn(bytes, count);
    return json_stringn(text, bpe_alphabet_write(bytes, count, text));
}

static json_t *vocab_json(const struct tokenizer *tokenizer, bool specials)
{
    const struct bpe *bpe = tokenizer->bpe;
    json_t *vocab = json_object();
    int failures = 0;
    for (int32_t id = 0; id < tokenizer->vocab_size; id++) {
        if (!specials && bpe_is_special(bpe, id))
            continue;
        json_t *text = token_json(tokenizer, id);
        failures |=
            text == NULL || json_object_setn_new(vocab, json_string_value(text),
                                                 json_string_length(text), json_integer(id)) != 0;
        json_decref(text);
    }
    return json_whole(vocab, failures);
}

static json_t *merges_json(const struct bpe *bpe)
{
    char text[BPE_MERGE_BYTES];
    json_t *list = json_array();
    int failures = 0;
    for (size_t i = 0; bpe != NULL && i < bpe->merge_count; i++) {
        failures |= json_array_append_new(list, json_stringn(text, bpe_merge_write(bpe, i, text)));
    }
    return json_whole(list, failures);
}

static json_t *added_json(const struct bpe *bpe)
{
    json_t *list = json_array();
    int failures = 0;
    for (size_t i = 0; bpe != NULL && i < bpe->special_count; i++)
        failures |= json_array_append_new(
            list, json_pack("{s:i, s:o, s:b, s:b, s:b, s:b, s:b}", "id", bpe->specials[i],
                            "content", tokenizer_bpe_token(bpe, bpe->specials[i]), "single_word", 0,
                            "lstrip", 0, "rstrip", 0, "normalized", 0, "special", 1));
    return json_whole(list, failures);
}

/* ---- whole files ---- */

/* Returns the tokenizer.json that was read: its pipeline, with vocabulary and merges. */
static json_t *pipeline_json(const struct tokenizer *tokenizer)
{
    json_t *root = json_loads(tokenizer_pipeline(tokenizer)->json, 0, NULL),
           *model = json_object_get(root, "model");
    json_t *vocab = vocab_json(tokenizer, false);
    int failures = json_object_update(vocab, json_object_get(model, "vocab"));
    failures |= json_object_set_new(model, "vocab", vocab);
    failures |= json_object_set_new(model, "merges", merges_json(tokenizer->bpe));
    return json_whole(root, failures);
}

/* When an argument is NULL, json_pack() releases the others and fails. */
static json_t *tokenizer_json(const struct tokenizer *tokenizer)
{
    const struct bpe *bpe = tokenizer->bpe;
    const bool chars = tokenizer->kind == TOKENIZER_CHARS;
    if (tokenizer_pipeline(tokenizer)->json != NULL)
        return pipeline_json(tokenizer);
    json_t *model = json_pack(
        "{s:s, s:n, s:n, s:n, s:n, s:b, s:b, s:b, s:o, s:o}", "type", "BPE", "dropout", "unk_token",
        "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk", 0, "byte_fallback", 0,
        "ignore_merges", 0, "vocab", vocab_json(tokenizer, true), "merges", merges_json(bpe));
    json_t *split = chars ? json_null()
                          : json_pack("{s:s, s:b, s:b, s:b}", "type", "ByteLevel",
                                      "add_prefix_space", 0, "trim_offsets", 1, "use_regex", 1);
    json_t *decoder = chars ? json_pack("{s:s}", "type", "Fuse") : json_incref(split);
    return json_pack("{s:s, s:n, s:n, s:o, s:n, s:o, s:n, s:o, s:o}", "version", "1.0",
                     "truncation", "padding", "added_tokens", added_json(bpe), "normalizer",
                     "pre_tokenizer", split, "post_processor", "decoder", decoder, "model", model);
}

/* PreTrainedTokenizerFast accepts any tokenizer.json; GPT2Tokenizer requires an end-of-text token
 * and merges. */
static json_t *config_json(const struct tokenizer *tokenizer, int32_t block_size)
{
    json_t *root =
        json_pack("{s:s, s:i, s:b}", "tokenizer_class", "PreTrainedTokenizerFast",
                  "model_max_length", (int)block_size, "clean_up_tokenization_spaces", 0);
    const int32_t end = tokenizer_eot(tokenizer), begin = tokenizer_pipeline(tokenizer)->bos;
    json_t *generation =
        tokenizer->generation != NULL ? json_loads(tokenizer->generation, 0, NULL) : NULL;
    const int64_t padding = tokenizer_generation_id(generation, "pad_token_id", 0);
    json_decref(generation);
    const struct {
        const char *name;
        int32_t id;
    } roles[] = {{"bos_token", begin >= 0 ? begin : end},
                 {"eos_token", chat_end_learnt(tokenizer)},
                 {"unk_token", begin >= 0 ? -1 : end},
                 {"pad_token", padding < tokenizer->vocab_size ? (int32_t)padding : -1}};
    int failures = root == NULL;
    for (size_t i = 0; i < sizeof roles / sizeof roles[0]; i++)
        if (roles[i].id >= 0)
            failures |=
                json_object_set_new(root, roles[i].name, token_json(tokenizer, roles[i].id));
    const char *jinja = chat_jinja_learnt(tokenizer);
    if (jinja != NULL)
        failures |= json_object_set_new(root, "chat_template", json_string(jinja));
    return json_whole(root, failures);
}

/* Returns the text, or NULL. */
static char *merges_txt(const struct bpe *bpe)
{
    char line[BPE_MERGE_BYTES], *text = NULL;
    size_t size_bytes;
    FILE *stream = open_memstream(&text, &size_bytes);
    bool failed = stream == NULL || fputs("#version: 0.2\n", stream) < 0;
    for (size_t i = 0; bpe != NULL && i < bpe->merge_count && !failed; i++) {
        bpe_merge_write(bpe, i, line);
        failed = fprintf(stream, "%s\n", line) < 0;
    }
    failed = (stream != NULL && fclose(stream) != 0) || failed;
    if (!failed)
        return text;
    free(text);
    return NULL;
}

enum gt_status tokenizer_file_text(const struct tokenizer *tokenizer, enum tokenizer_file file,
                                   int32_t block_size, char **out)
{
    json_t *root = NULL;
    *out = NULL;
    if (!file_exists_for(tokenizer, file))
        return GT_OK;
    if (file == TOKENIZER_FILE_OURS)
        return tokenizer_text(tokenizer, out);
    if (file == TOKENIZER_FILE_MERGES)
        *out = merges_txt(tokenizer->bpe);
    else if (file == TOKENIZER_FILE_CONFIG)
        root = config_json(tokenizer, block_size);
    else
        root =
            file == TOKENIZER_FILE_VOCAB ? vocab_json(tokenizer, true) : tokenizer_json(tokenizer);
    if (root == NULL && *out == NULL)
        return FAIL(GT_NO_MEMORY, "out of memory: %s", tokenizer_file_names[file]);
    const int indent = file == TOKENIZER_FILE_CONFIG ? 2 : 0;
    const enum gt_status status = root != NULL ? json_text(root, indent, "", out) : GT_OK;
    json_decref(root);
    return status;
}

enum gt_status tokenizer_files_save(const struct tokenizer *tokenizer, int32_t block_size,
                                    const char *folder)
{
    if (!tokenizer_can_merge(tokenizer))
        log_note(
            "the tokenizer has ranks but no merges, which tokenizer.json needs; it is written as " TOKENIZER_FILE_NAME
            " only");
    for (int i = 0; i < TOKENIZER_FILES; i++) {
        char *text;
        TRY(tokenizer_file_text(tokenizer, (enum tokenizer_file)i, block_size, &text));
        const char *path = FILE_IN(folder, tokenizer_file_names[i]);
        const enum gt_status status = text != NULL ? file_replace(path, text, strlen(text)) : GT_OK;
        free(text);
        TRY(status);
    }
    return GT_OK;
}
