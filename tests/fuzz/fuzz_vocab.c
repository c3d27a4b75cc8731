/* Fuzzes the pair of vocab.json (or encoder.json) and merges.txt, separated by a zero byte in the
 * input.
 *
 * With an accepted pair any encoded text decodes to the same bytes; the pair can be written, and
 * the result is accepted as the same pair.
 */
#include <string.h>

#include "data/tokenizer.h"
#include "data/tokenizer_export.h"
#include "data/tokenizer_import.h"
#include "tests/fuzz/fuzz_tokenizer.h"

static enum gt_status import(struct hostmem *mem, const char *vocab, size_t vocab_count,
                             const char *merges, size_t merges_count, struct tokenizer **out)
{
    return tokenizer_import_pair(mem, &(struct tokenizer_source){"vocab.json", vocab, vocab_count},
                                 &(struct tokenizer_source){"merges.txt", merges, merges_count},
                                 out);
}

static void check_written(struct hostmem *mem, const struct tokenizer *tokenizer)
{
    char *vocab = NULL, *merges = NULL;
    struct tokenizer *again = NULL;
    FUZZ_CHECK(tokenizer_file_text(tokenizer, TOKENIZER_FILE_VOCAB, 1, &vocab) == GT_OK);
    FUZZ_CHECK(tokenizer_file_text(tokenizer, TOKENIZER_FILE_MERGES, 1, &merges) == GT_OK);
    FUZZ_CHECK(import(mem, vocab, strlen(vocab), merges, strlen(merges), &again) == GT_OK);
    FUZZ_CHECK(again->hash == tokenizer->hash);
    hostmem_free(again);
    free(merges);
    free(vocab);
}

void fuzz_one(struct hostmem *mem, const uint8_t *data, size_t size)
{
    struct tokenizer *tokenizer = NULL;
    const uint8_t *zero = size > 0 ? memchr(data, 0, size) : NULL;
    const size_t vocab_count = zero != NULL ? (size_t)(zero - data) : size;
    const size_t merges_count = zero != NULL ? size - vocab_count - 1 : 0;
    if (import(mem, (const char *)data, vocab_count, (const char *)data + size - merges_count,
               merges_count, &tokenizer) != GT_OK)
        return;
    fuzz_check_encodes(tokenizer, fuzz_text, sizeof fuzz_text);
    check_written(mem, tokenizer);
    hostmem_free(tokenizer);
}
