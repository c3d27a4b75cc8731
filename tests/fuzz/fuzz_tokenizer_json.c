/* Fuzzes the JSON tokenizers: gpt_tokenizer.json and Hugging Face's tokenizer.json, with the same
 * bytes as both.
 *
 * An accepted tokenizer can be saved, and the saved file is accepted with the same hash.
 */
#include <string.h>

#include "base/json.h"
#include "data/bpe.h"
#include "data/tokenizer.h"
#include "data/tokenizer_bpe.h"
#include "data/tokenizer_import.h"
#include "tests/fuzz/fuzz_common.h"

static void check_again(struct hostmem *mem, const struct tokenizer *tokenizer)
{
    char *text = NULL;
    json_t *root = NULL;
    struct bpe *back = NULL;
    FUZZ_CHECK(tokenizer_text(tokenizer, &text) == GT_OK);
    FUZZ_CHECK(json_parse(text, strlen(text), "again", &root) == GT_OK);
    FUZZ_CHECK(tokenizer_bpe_read(mem, root, "again", &back) == GT_OK);
    FUZZ_CHECK(back->hash == tokenizer->hash);
    hostmem_free(back);
    json_decref(root);
    free(text);
}

void fuzz_one(struct hostmem *mem, const uint8_t *data, size_t size)
{
    struct tokenizer *tokenizer = NULL;
    struct bpe *bpe = NULL;
    json_t *root = NULL;
    const struct tokenizer_source source = {"input", (const char *)data, size};
    if (tokenizer_import_json(mem, &source, &tokenizer) == GT_OK)
        check_again(mem, tokenizer);
    hostmem_free(tokenizer);
    if (json_parse((const char *)data, size, "input", &root) == GT_OK &&
        tokenizer_bpe_read(mem, root, "input", &bpe) == GT_OK) {
        FUZZ_CHECK(tokenizer_create_bpe(mem, bpe, &tokenizer) == GT_OK);
        check_again(mem, tokenizer);
        hostmem_free(tokenizer);
    }
    json_decref(root);
}
