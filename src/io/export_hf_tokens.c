/* Writes tokenizers in Hugging Face's formats.
 *
 * data/tokenizer_export.c writes kind bpe; kind bytes is a BPE of 256 tokens.  Kind chars becomes a BPE with no merges,
 * no split and a decoder that concatenates, so that the `tokenizers` library looks up each character.  It drops a
 * character that is not in the vocabulary, whereas our own tokenizer rejects the text.
 */
#include "io/export_hf_tokens.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "data/bpe.h"
#include "data/chat.h"
#include "data/tokenizer_bpe.h"
#include "data/tokenizer_export.h"

#define CHARACTER_BYTES_MAX 4

enum { OURS, TOKENIZER, CONFIG, VOCAB, MERGES };
const char *const export_hf_tokens_names[EXPORT_HF_TOKENS_FILES] = {[OURS] = TOKENIZER_FILE_NAME,
                                                                    [TOKENIZER] = "tokenizer.json",
                                                                    [CONFIG] = "tokenizer_config.json",
                                                                    [VOCAB] = "vocab.json",
                                                                    [MERGES] = "merges.txt"};

static enum gt_status bytes_as_bpe(struct hostmem *mem, struct tokenizer **out)
{
    const struct bpe_spec spec = {.vocab_size = 256, .text_bytes = 256, .rank = BPE_RANK_MERGE};
    struct bpe *bpe = NULL;
    TRY(bpe_create(mem, &spec, &bpe));
    for (int32_t id = 0; id < 256; id++) {
        const char byte = (char)(unsigned char)id;
        (void)bpe_add_token(bpe, id, &byte, 1, false);
    }
    const enum gt_status status = bpe_finish(bpe, "the bytes");
    if (status != GT_OK) {
        bpe_destroy(bpe);
        return status;
    }
    return tokenizer_create_bpe(mem, bpe, out);
}

/* Gives the text of `root` and releases `root`.  NULL means out of memory. */
static enum gt_status json_take(json_t *root, int file, int indent, char **out)
{
    if (root == NULL) {
        log_error("out of memory: %s", export_hf_tokens_names[file]);
        return GT_NO_MEMORY;
    }
    const enum gt_status status = json_text(root, indent, out);
    json_decref(root);
    return status;
}

/* Returns NULL when memory runs out. */
static json_t *chars_vocab(const struct tokenizer *tokenizer)
{
    json_t *vocab = json_object();
    int failures = 0;
    for (int32_t id = 0; id < tokenizer_vocab_size(tokenizer); id++) {
        char scratch[CHARACTER_BYTES_MAX], text[CHARACTER_BYTES_MAX + 1] = {0};
        const char *bytes = NULL;
        const size_t count = tokenizer_token_bytes(tokenizer, id, scratch, &bytes);
        memcpy(text, bytes, count);
        failures |= json_object_setn_new(vocab, text, count, json_integer(id));
    }
    return json_whole(vocab, failures);
}

static json_t *chars_json(const struct tokenizer *tokenizer)
{
    json_t *model = json_pack("{s:s, s:n, s:n, s:n, s:n, s:b, s:b, s:b, s:o, s:[]}", "type", "BPE", "dropout",
                              "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk", 0,
                              "byte_fallback", 0, "ignore_merges", 0, "vocab", chars_vocab(tokenizer), "merges");
    return json_pack("{s:s, s:n, s:n, s:[], s:n, s:n, s:n, s:{s:s}, s:o}", "version", "1.0", "truncation", "padding",
                     "added_tokens", "normalizer", "pre_tokenizer", "post_processor", "decoder", "type", "Fuse",
                     "model", model);
}

/* PreTrainedTokenizerFast accepts any tokenizer.json; GPT2Tokenizer requires an end-of-text token and merges. */
static json_t *config_json(const struct tokenizer *tokenizer, int32_t block_size)
{
    json_t *root = json_pack("{s:s, s:i, s:b}", "tokenizer_class", "PreTrainedTokenizerFast", "model_max_length",
                             (int)block_size, "clean_up_tokenization_spaces", 0);
    const int32_t end = tokenizer_eot(tokenizer), begin = tokenizer_pipeline(tokenizer)->bos;
    const struct {
        const char *name;
        int32_t id;
    } roles[] = {{"bos_token", begin >= 0 ? begin : end},
                 {"eos_token", chat_end(tokenizer)},
                 {"unk_token", begin >= 0 ? -1 : end}};
    int failures = root == NULL;
    for (size_t i = 0; i < sizeof roles / sizeof roles[0]; i++)
        if (roles[i].id >= 0)
            failures |=
                json_object_set_new(root, roles[i].name, tokenizer_bpe_token(tokenizer_bpe(tokenizer), roles[i].id));
    const enum chat_kind chat = chat_kind_of(tokenizer);
    if (chat != CHAT_NONE)
        failures |= json_object_set_new(root, "chat_template", json_string(chat_jinja(chat)));
    return json_whole(root, failures);
}

/* Appends the newline that ends the file. */
static enum gt_status newline_add(char **text)
{
    const size_t length = strlen(*text);
    char *longer = realloc(*text, length + 2);
    if (longer == NULL) {
        log_error("out of memory: %s", TOKENIZER_FILE_NAME);
        return GT_NO_MEMORY;
    }
    memcpy(longer + length, "\n", 2);
    *text = longer;
    return GT_OK;
}

static enum gt_status text_make(const struct tokenizer *tokenizer, const struct tokenizer *as_bpe, int32_t block_size,
                                int file, char **out)
{
    static const enum tokenizer_export parts[] = {
        [TOKENIZER] = TOKENIZER_EXPORT_JSON, [VOCAB] = TOKENIZER_EXPORT_VOCAB, [MERGES] = TOKENIZER_EXPORT_MERGES};
    size_t size_bytes;
    if (file == OURS) {
        TRY(tokenizer_text(tokenizer, out));
        return newline_add(out);
    }
    if (file == CONFIG)
        return json_take(config_json(tokenizer, block_size), file, 2, out);
    if (tokenizer_export_possible(as_bpe, parts[file]))
        return tokenizer_export_text(as_bpe, parts[file], out, &size_bytes);
    if (file == TOKENIZER && tokenizer_kind_of(tokenizer) == TOKENIZER_CHARS)
        return json_take(chars_json(tokenizer), file, 0, out);
    return GT_OK;
}

enum gt_status export_hf_tokens_texts(struct hostmem *mem, const struct tokenizer *tokenizer, int32_t block_size,
                                      int count, char *out[])
{
    struct tokenizer *bytes = NULL;
    for (int i = 0; i < count; i++)
        out[i] = NULL;
    if (tokenizer_kind_of(tokenizer) == TOKENIZER_BYTES)
        TRY(bytes_as_bpe(mem, &bytes));
    enum gt_status status = GT_OK;
    for (int i = 0; i < count && status == GT_OK; i++)
        status = text_make(tokenizer, bytes != NULL ? bytes : tokenizer, block_size, i, &out[i]);
    tokenizer_destroy(bytes);
    if (status != GT_OK)
        export_hf_tokens_free(out, count);
    return status;
}

void export_hf_tokens_free(char *texts[], int count)
{
    for (int i = 0; i < count; i++) {
        free(texts[i]);
        texts[i] = NULL;
    }
}

enum gt_status export_hf_tokens_save(struct hostmem *mem, const struct tokenizer *tokenizer, int32_t block_size,
                                     const char *folder)
{
    char *texts[EXPORT_HF_TOKENS_FILES], path[FILE_PATH_MAX];
    TRY(export_hf_tokens_texts(mem, tokenizer, block_size, EXPORT_HF_TOKENS_FILES, texts));
    if (texts[TOKENIZER] == NULL)
        log_note(
            "the tokenizer has ranks but no merges, which tokenizer.json needs; it is written as " TOKENIZER_FILE_NAME
            " only");
    enum gt_status status = GT_OK;
    for (int i = 0; i < EXPORT_HF_TOKENS_FILES && status == GT_OK; i++) {
        if (texts[i] == NULL)
            continue;
        status = file_join(path, folder, export_hf_tokens_names[i]);
        if (status == GT_OK)
            status = file_replace(path, texts[i], strlen(texts[i]));
    }
    export_hf_tokens_free(texts, EXPORT_HF_TOKENS_FILES);
    return status;
}
