/* Fuzzes tiktoken's files; with an accepted one, encoded text must decode to the same bytes. */
#include "data/bpe.h"
#include "data/tokenizer.h"
#include "data/tokenizer_import.h"
#include "tests/fuzz/fuzz_common.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct hostmem *mem = fuzz_open();
    struct tokenizer *tokenizer = NULL;
    if (tokenizer_import_tiktoken(mem, (const char *)data, size, "input", &tokenizer) == GT_OK) {
        char all[256], scratch[4];
        int32_t ids[256];
        size_t count = 0, total = 0;
        for (int i = 0; i < 256; i++)
            all[i] = (char)i;
        FUZZ_CHECK(tokenizer_encode(tokenizer, all, sizeof all, "bytes", ids, &count) == GT_OK);
        for (size_t i = 0; i < count; i++) {
            const char *bytes = NULL;
            total += tokenizer_token_bytes(tokenizer, ids[i], scratch, &bytes);
        }
        FUZZ_CHECK(total == sizeof all);
        tokenizer_destroy(tokenizer);
    }
    fuzz_close(mem);
    return 0;
}
