/* Fuzzes token files: the header, and every token of an accepted file. */
#include "data/tokens.h"
#include "tests/fuzz/fuzz_common.h"

enum { READ_MAX = 1000, VOCAB_SIZE = 50257 };

void fuzz_one(struct hostmem *mem, const uint8_t *data, size_t size)
{
    int32_t ids[READ_MAX];
    struct token_source *source = NULL;
    const char *paths[1] = {fuzz_file(data, size)};
    const struct token_source_spec spec = {
        .paths = paths, .path_count = 1, .vocab_size = VOCAB_SIZE};
    if (token_source_open(mem, &spec, &source) == GT_OK) {
        const int64_t length = source->length;
        FUZZ_CHECK(length > 0 && (uint64_t)length <= size / 2);
        for (int64_t at = 0; at < length; at += READ_MAX) {
            const int64_t count = length - at < READ_MAX ? length - at : READ_MAX;
            if (token_source_read(source, at, count, ids) != GT_OK)
                break;
            for (int64_t i = 0; i < count; i++)
                FUZZ_CHECK(ids[i] >= 0 && ids[i] < VOCAB_SIZE);
        }
    }
    hostmem_free(source);
}
