/* Fuzzes safetensors files and the index of their shards: the input is both.  It is stored as
 * "model.safetensors.index.json" and as the only shard that this index can name.
 */
#include <fcntl.h>
#include <string.h>

#include "io/safetensors_index.h"
#include "tests/fuzz/fuzz_weights.h"

/* The folder, which is created once and removed at the end, and the paths of its two files. */
static struct {
    char folder[64], index[128], shard[128];
} paths;

static void folder_remove(void)
{
    unlink(paths.index);
    unlink(paths.shard);
    rmdir(paths.folder);
}

static void folder_make(void)
{
    snprintf(paths.folder, sizeof paths.folder, "%s/gpt-train-fuzz-XXXXXX", fuzz_folder());
    FUZZ_CHECK(mkdtemp(paths.folder) != NULL && atexit(folder_remove) == 0);
    snprintf(paths.index, sizeof paths.index, "%s/%s", paths.folder, SAFETENSORS_INDEX_NAME);
    snprintf(paths.shard, sizeof paths.shard, "%s/a.safetensors", paths.folder);
}

static void file_write(const char *path, const uint8_t *data, size_t size)
{
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    FUZZ_CHECK(fd >= 0 && write(fd, data, size) == (ssize_t)size && close(fd) == 0);
}

static void folder_use(struct hostmem *mem, const uint8_t *data, size_t size)
{
    struct safetensors *file = NULL;
    /* The bytes after a zero byte are the shard, so that both can be valid at once. */
    const uint8_t *zero = memchr(data, 0, size);
    const size_t text = zero != NULL ? (size_t)(zero - data) : size;
    const size_t rest = zero != NULL ? size - text - 1 : 0;
    if (paths.folder[0] == '\0')
        folder_make();
    file_write(paths.index, data, text);
    file_write(paths.shard, data + size - rest, rest);
    if (safetensors_index_open(mem, paths.folder, &file) == GT_OK)
        fuzz_arrays_read(file);
    safetensors_close(file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct safetensors *file = NULL;
    struct hostmem *mem = fuzz_open();
    if (size == 0 || data[0] != '{') {
        if (safetensors_open(mem, fuzz_file(data, size), &file) == GT_OK)
            fuzz_arrays_read(file);
        safetensors_close(file);
    } else {
        folder_use(mem, data, size);
    }
    fuzz_close(mem);
    return 0;
}
