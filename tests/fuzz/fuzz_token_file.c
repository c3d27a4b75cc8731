/* Fuzzes token files: the header, and every token of a file that is accepted. */
#include <unistd.h>

#include "data/tokens.h"
#include "tests/fuzz/fuzz_common.h"

enum { READ_MAX = 1000, VOCAB_SIZE = 50257 };

/* The input as a file that nobody else has. */
static void file_make(const uint8_t *data, size_t size, char path[static 64])
{
    snprintf(path, 64, "/tmp/fuzz-token-file-%ld.bin", (long)getpid());
    FILE *file = fopen(path, "wb");
    FUZZ_CHECK(file != NULL && fwrite(data, 1, size, file) == size && fclose(file) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[64];
    int32_t ids[READ_MAX];
    struct token_source *source = NULL;
    struct hostmem *mem = fuzz_open();
    file_make(data, size, path);
    const char *paths[1] = {path};
    const struct token_source_spec spec = {.paths = paths, .path_count = 1, .vocab_size = VOCAB_SIZE};
    if (token_source_open(mem, &spec, &source) == GT_OK) {
        const int64_t length = token_source_length(source);
        FUZZ_CHECK(length > 0 && (uint64_t)length <= size / 2);
        for (int64_t at = 0; at < length; at += READ_MAX) {
            const int64_t count = length - at < READ_MAX ? length - at : READ_MAX;
            if (token_source_read(source, at, count, ids) != GT_OK)
                break;
            for (int64_t i = 0; i < count; i++)
                FUZZ_CHECK(ids[i] >= 0 && ids[i] < VOCAB_SIZE);
        }
    }
    token_source_close(source);
    unlink(path);
    fuzz_close(mem);
    return 0;
}
