/* Fuzzes tiktoken's files; with an accepted one, encoded text must decode to the same bytes. */
#include "data/bpe.h"
#include "data/tokenizer.h"
#include "data/tokenizer_import.h"
#include "tests/fuzz/fuzz_tokenizer.h"

void fuzz_one(struct hostmem *mem, const uint8_t *data, size_t size)
{
    struct tokenizer *tokenizer = NULL;
    char all[256];
    const struct tokenizer_source source = {"input", (const char *)data, size};
    if (tokenizer_import_tiktoken(mem, &source, &tokenizer) != GT_OK)
        return;
    for (int i = 0; i < 256; i++)
        all[i] = (char)i;
    fuzz_check_encodes(tokenizer, all, sizeof all);
    fuzz_check_encodes(tokenizer, fuzz_text, sizeof fuzz_text);
    hostmem_free(tokenizer);
}
