/* Fuzzes safetensors files and the index of their shards: the input is both, "model.safetensors.index.json" in a folder
 * where it is also the only shard that it can name.
 */
#include <string.h>

#include "io/safetensors_index.h"
#include "tests/fuzz/fuzz_weights.h"

static void folder_use(struct hostmem *mem, const uint8_t *data, size_t size)
{
    char folder[64], index[128], shard[128];
    struct safetensors *file = NULL;
    /* What follows a zero byte is the shard, so that both can be valid at once. */
    const uint8_t *zero = memchr(data, 0, size);
    const size_t text = zero != NULL ? (size_t)(zero - data) : size;
    const size_t rest = zero != NULL ? size - text - 1 : 0;
    snprintf(folder, sizeof folder, "/tmp/fuzz-shards-%ld", (long)getpid());
    FUZZ_CHECK(file_make_folders(folder) == GT_OK);
    snprintf(index, sizeof index, "%s/%s", folder, SAFETENSORS_INDEX_NAME);
    snprintf(shard, sizeof shard, "%s/a.safetensors", folder);
    FILE *out = fopen(index, "wb");
    FUZZ_CHECK(out != NULL && fwrite(data, 1, text, out) == text && fclose(out) == 0);
    out = fopen(shard, "wb");
    FUZZ_CHECK(out != NULL && fwrite(data + size - rest, 1, rest, out) == rest && fclose(out) == 0);
    if (safetensors_index_open(mem, folder, &file) == GT_OK)
        fuzz_arrays_read(file);
    safetensors_close(file);
    unlink(index);
    unlink(shard);
    rmdir(folder);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[64];
    struct safetensors *file = NULL;
    struct hostmem *mem = fuzz_open();
    if (size == 0 || data[0] != '{') {
        fuzz_file_make(data, size, "safetensors", path);
        if (safetensors_open(mem, path, &file) == GT_OK)
            fuzz_arrays_read(file);
        safetensors_close(file);
        unlink(path);
    } else {
        folder_use(mem, data, size);
    }
    fuzz_close(mem);
    return 0;
}
