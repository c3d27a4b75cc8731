/* Fuzzes vocab.bpe and merges.txt, with a fixed vocabulary: the bytes and a few longer tokens.
 *
 * With an accepted list of merges, encoded text must decode to the same bytes.
 */
#include <string.h>

#include "data/bpe.h"
#include "data/tokenizer.h"
#include "data/tokenizer_import.h"
#include "tests/fuzz/fuzz_tokenizer.h"

/* Creates the vocabulary without merges, with room for as many merges as the file may have lines.
 */
static struct bpe *vocabulary_make(struct hostmem *mem, size_t lines)
{
    static const char *const longer[] = {"ab", "abc", "bc", "aa", "aaaa", " a", "\n\n", "\xC3\xA9"};
    enum { LONGER_COUNT = sizeof longer / sizeof longer[0] };
    const struct bpe_spec spec = {.vocab_size = 256 + LONGER_COUNT,
                                  .text_bytes = 1024,
                                  .merge_count = lines,
                                  .rank = BPE_RANK_MERGE};
    struct bpe *bpe = NULL;
    FUZZ_CHECK(bpe_create(mem, &spec, &bpe) == GT_OK);
    for (int id = 0; id < 256; id++) {
        const char byte = (char)bpe_alphabet_byte(id);
        FUZZ_CHECK(bpe_add_token(bpe, id, &byte, 1, false) == BPE_ADDED);
    }
    for (int i = 0; i < LONGER_COUNT; i++)
        FUZZ_CHECK(bpe_add_token(bpe, 256 + i, longer[i], strlen(longer[i]), false) == BPE_ADDED);
    return bpe;
}

static enum gt_status import(struct hostmem *mem, const uint8_t *data, size_t size,
                             struct tokenizer **out)
{
    size_t lines = 1;
    for (size_t i = 0; i < size; i++)
        lines += data[i] == '\n';
    struct bpe *bpe = vocabulary_make(mem, lines);
    enum gt_status status = tokenizer_import_merges(
        bpe, &(struct tokenizer_source){"merges.txt", (const char *)data, size});
    if (status == GT_OK)
        status = bpe_finish(bpe, "vocab.json");
    if (status == GT_OK)
        return tokenizer_create_bpe(mem, bpe, out);
    hostmem_free(bpe);
    return status;
}

void fuzz_one(struct hostmem *mem, const uint8_t *data, size_t size)
{
    struct tokenizer *tokenizer = NULL;
    if (import(mem, data, size, &tokenizer) != GT_OK)
        return;
    fuzz_check_encodes(tokenizer, fuzz_text, sizeof fuzz_text);
    hostmem_free(tokenizer);
}
