/* Tokenizers in Hugging Face's words.
 *
 * Kind bpe is written by data/tokenizer_export.c, and bytes are a bpe of 256 tokens.  Characters are tokens of a BPE that
 * has no merges, no split and a decoder that joins: what the `tokenizers` library then does is to look up each character.
 * One that is not in the vocabulary is dropped there, where our own tokenizer refuses the text.
 */
#include "io/export_hf_tokens.h"

#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "data/bpe.h"
#include "data/tokenizer_export.h"

#define TOKENIZER_JSON "tokenizer.json"
#define CONFIG_JSON "tokenizer_config.json"
#define CHARACTER_BYTES_MAX 4

const char *const export_hf_tokens_names[EXPORT_HF_TOKENS_FILES] = {TOKENIZER_FILE_NAME, TOKENIZER_JSON, "vocab.json",
                                                                    "merges.txt", CONFIG_JSON};

static enum gt_status bytes_as_bpe(struct hostmem *mem, struct tokenizer **out);
static enum gt_status chars_save(const struct tokenizer *tokenizer, const char *folder);
static enum gt_status config_save(const struct tokenizer *tokenizer, int32_t block_size, const char *folder);

enum gt_status export_hf_tokens_save(struct hostmem *mem, const struct tokenizer *tokenizer, int32_t block_size,
                                     const char *folder)
{
    char path[FILE_PATH_MAX];
    struct tokenizer *bytes = NULL;
    TRY(file_join(path, folder, TOKENIZER_FILE_NAME));
    TRY(tokenizer_save(tokenizer, path));
    if (tokenizer_kind_of(tokenizer) == TOKENIZER_CHARS) {
        TRY(chars_save(tokenizer, folder));
        return config_save(tokenizer, block_size, folder);
    }
    if (tokenizer_kind_of(tokenizer) == TOKENIZER_BYTES)
        TRY(bytes_as_bpe(mem, &bytes));
    const struct tokenizer *written = bytes != NULL ? bytes : tokenizer;
    enum gt_status status = GT_OK;
    if (!tokenizer_export_possible(written)) {
        log_note("the tokenizer has no list of merges, which tokenizer.json needs: the folder has " TOKENIZER_FILE_NAME
                 " only");
    } else {
        status = tokenizer_export_save(written, folder);
        if (status == GT_OK)
            status = config_save(written, block_size, folder);
    }
    tokenizer_destroy(bytes);
    return status;
}

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

/* Writes `root` and releases it; NULL is memory that ran out. */
static enum gt_status json_save(json_t *root, const char *folder, const char *name, int indent)
{
    char path[FILE_PATH_MAX];
    if (root == NULL) {
        log_error("out of memory: %s", name);
        return GT_NO_MEMORY;
    }
    enum gt_status status = file_join(path, folder, name);
    if (status == GT_OK)
        status = json_replace_file(path, root, indent);
    json_decref(root);
    return status;
}

/* NULL when memory ran out. */
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
    if (failures == 0)
        return vocab;
    json_decref(vocab);
    return NULL;
}

static enum gt_status chars_save(const struct tokenizer *tokenizer, const char *folder)
{
    json_t *model = json_pack("{s:s, s:n, s:n, s:n, s:n, s:b, s:b, s:b, s:o, s:[]}", "type", "BPE", "dropout",
                              "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk", 0,
                              "byte_fallback", 0, "ignore_merges", 0, "vocab", chars_vocab(tokenizer), "merges");
    json_t *root = json_pack("{s:s, s:n, s:n, s:[], s:n, s:n, s:n, s:{s:s}, s:o}", "version", "1.0", "truncation",
                             "padding", "added_tokens", "normalizer", "pre_tokenizer", "post_processor", "decoder",
                             "type", "Fuse", "model", model);
    return json_save(root, folder, TOKENIZER_JSON, 0);
}

/* GPT2Tokenizer insists on an end-of-text token, so vocabularies without one have the class of any tokenizer.json. */
static enum gt_status config_save(const struct tokenizer *tokenizer, int32_t block_size, const char *folder)
{
    json_t *root = json_pack("{s:s, s:i, s:b}", "tokenizer_class",
                             tokenizer_eot(tokenizer) >= 0 ? "GPT2Tokenizer" : "PreTrainedTokenizerFast",
                             "model_max_length", (int)block_size, "clean_up_tokenization_spaces", 0);
    static const char *const roles[] = {"bos_token", "eos_token", "unk_token"};
    int failures = root == NULL;
    for (size_t i = 0; tokenizer_eot(tokenizer) >= 0 && i < sizeof roles / sizeof roles[0]; i++)
        failures |= json_object_set_new(root, roles[i], json_string(BPE_EOT_TEXT));
    if (failures != 0) {
        json_decref(root);
        root = NULL;
    }
    return json_save(root, folder, CONFIG_JSON, 2);
}
