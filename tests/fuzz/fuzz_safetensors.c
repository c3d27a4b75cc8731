/* Fuzzes safetensors files and the index of their shards: the input is both.  It is stored as
 * "model.safetensors.index.json" and as the only shard that this index can name.
 */
#include "io/safetensors.h"
#include "io/safetensors_table.h"
#include "tests/fuzz/fuzz_folder.h"
#include "tests/fuzz/fuzz_weights.h"

static void folder_use(struct hostmem *mem, const uint8_t *data, size_t size)
{
    struct safetensors *file = NULL;
    char path[FILE_PATH_MAX];
    /* The bytes after a zero byte are the shard, so that both can be valid at once. */
    const uint8_t *zero = memchr(data, 0, size);
    const size_t text = zero != NULL ? (size_t)(zero - data) : size;
    const size_t rest = zero != NULL ? size - text - 1 : 0;
    fuzz_folder_make("");
    fuzz_path(path, SAFETENSORS_INDEX_NAME);
    fuzz_file_put(path, data, text);
    fuzz_path(path, "a.safetensors");
    fuzz_file_put(path, data + size - rest, rest);
    if (safetensors_index_open(mem, fuzz_place.folder, &file) == GT_OK)
        fuzz_arrays_read(file);
    hostmem_free(file);
}

void fuzz_one(struct hostmem *mem, const uint8_t *data, size_t size)
{
    struct safetensors *file = NULL;
    if (size > 0 && data[0] == '{') {
        folder_use(mem, data, size);
        return;
    }
    if (safetensors_open(mem, fuzz_file(data, size), true, &file) == GT_OK)
        fuzz_arrays_read(file);
    hostmem_free(file);
}
