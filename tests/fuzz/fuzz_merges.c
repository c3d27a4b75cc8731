/* Fuzzing of vocab.bpe and merges.txt, with a fixed vocabulary: the bytes and a few longer tokens.
 *
 * An accepted list of merges must encode, and what it encodes must come back.
 */
#include <string.h>

#include "data/bpe.h"
#include "data/bpe_alphabet.h"
#include "data/tokenizer.h"
#include "data/tokenizer_import.h"
#include "tests/fuzz/fuzz_common.h"

/* {"!": 0, ..., "ab": 256, ...} */
static size_t vocabulary_write(char *out)
{
    static const char *const longer[] = {"ab", "abc", "bc", "aa", "aaaa", " a", "\n\n", "\xC3\xA9"};
    size_t at = 0;
    out[at++] = '{';
    for (int id = 0; id < 256 + (int)(sizeof longer / sizeof longer[0]); id++) {
        char bytes[8] = {(char)(id < 256 ? bpe_alphabet_byte(id) : 0)}, text[16];
        size_t count = 1;
        if (id >= 256) {
            count = strlen(longer[id - 256]);
            memcpy(bytes, longer[id - 256], count);
        }
        count = bpe_alphabet_write(bytes, count, text);
        const char *escape = count == 1 && (text[0] == '"' || text[0] == '\\') ? "\\" : "";
        at += (size_t)sprintf(out + at, "%s\"%s%.*s\":%d", id > 0 ? "," : "", escape, (int)count, text, id);
    }
    out[at++] = '}';
    return at;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char text[] = "aaaaaaa abcabc\n\n\xC3\xA9 bc ab <|endoftext|> \xFF\xC3";
    static char vocabulary[8192];
    static size_t vocabulary_count;
    struct hostmem *mem = fuzz_open();
    struct tokenizer *tokenizer = NULL;
    if (vocabulary_count == 0)
        vocabulary_count = vocabulary_write(vocabulary);
    if (tokenizer_import_pair(mem, vocabulary, vocabulary_count, "vocab.json", (const char *)data, size, "merges.txt",
                              &tokenizer) == GT_OK) {
        int32_t ids[sizeof text];
        char scratch[4];
        size_t count = 0, at = 0;
        FUZZ_CHECK(tokenizer_encode(tokenizer, text, sizeof text, "text", ids, &count) == GT_OK);
        for (size_t i = 0; i < count; i++) {
            const char *bytes = NULL;
            const size_t length = tokenizer_token_bytes(tokenizer, ids[i], scratch, &bytes);
            FUZZ_CHECK(at + length <= sizeof text && memcmp(text + at, bytes, length) == 0);
            at += length;
        }
        FUZZ_CHECK(at == sizeof text);
        tokenizer_destroy(tokenizer);
    }
    fuzz_close(mem);
    return 0;
}
