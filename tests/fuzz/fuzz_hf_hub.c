/* Fuzzes refs/main in the cache of Hugging Face's tools: it names a folder, which must not lie
 * outside the cache. */
#include "data/hf_hub.h"
#include "tests/fuzz/fuzz_folder.h"

#define REPOSITORY "models--gpt2"

void fuzz_one(struct hostmem *mem, const uint8_t *data, size_t size)
{
    (void)mem;
    char path[FILE_PATH_MAX], out[FILE_PATH_MAX], begin[FILE_PATH_MAX];
    fuzz_folder_make(REPOSITORY "/refs");
    fuzz_path(path, "main");
    fuzz_file_put(path, data, size);
    const int length =
        snprintf(begin, sizeof begin, "%s/" REPOSITORY "/snapshots/", fuzz_place.above);
    if (!hf_hub_snapshot(fuzz_place.above, REPOSITORY, out))
        return;
    const char *name = out + length;
    const size_t count = strlen(name);
    FUZZ_CHECK(strncmp(out, begin, (size_t)length) == 0);
    FUZZ_CHECK(count > 0 && count <= size && memcmp(name, data, count) == 0);
    FUZZ_CHECK(strspn(name, "0123456789abcdefABCDEF") == count);
    fuzz_folder_check();
}
