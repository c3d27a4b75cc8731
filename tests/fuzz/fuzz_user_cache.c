/* Fuzzes files of the user's cache: the header, the key and the checksum around a backend's data.
 *
 * A wrong checksum makes the reader reject the file before it reads the rest, so the input is tried again with more and
 * more of it corrected.  Accepted data must match the requested key to the last byte; they can be stored and load as
 * the same.  The size of the folder is bounded, and files with other names stay.
 */
#include <inttypes.h>

#include "base/crc32c.h"
#include "base/file.h"
#include "base/user_cache.h"
#include "tests/fuzz/fuzz_folder.h"

#define NAME "a card"
#define KEY "a card, driver 1"
#define KEY_BYTES (sizeof KEY - 1)
#define HEADER_BYTES 32
#define FILE_BYTES_MAX (HEADER_BYTES + USER_CACHE_KEY_MAX + 2048)

static const struct user_cache cache = {.folder = "fuzz",
                                        .magic = "GTFUZZ01",
                                        .suffix = ".fuzz",
                                        .otherwise = "it is made again",
                                        .bytes_max = FILE_BYTES_MAX + 100,
                                        .file_bytes_max = FILE_BYTES_MAX};
/* The file's header: magic, bytes of the key, bytes of the data, checksum, zero. */
struct header {
    char magic[8];
    uint64_t key_bytes, data_bytes;
    uint32_t crc32c, reserved;
};
_Static_assert(sizeof(struct header) == HEADER_BYTES, "no padding");

static char path[FILE_PATH_MAX], older[FILE_PATH_MAX];

static void open_cache(void)
{
    char name[64];
    if (path[0] != '\0')
        return;
    fuzz_cache_make("gpt-train/fuzz");
    snprintf(name, sizeof name, "%016" PRIx64 ".fuzz", hash_fnv1a(NAME, strlen(NAME)));
    fuzz_path(path, name);
    fuzz_path(older, "0.fuzz");
}

static void check_accepted(const uint8_t *data, size_t size, const void *out, size_t out_bytes)
{
    struct header header;
    FUZZ_CHECK(size > HEADER_BYTES + KEY_BYTES && out_bytes == size - HEADER_BYTES - KEY_BYTES);
    memcpy(&header, data, sizeof header);
    FUZZ_CHECK(memcmp(header.magic, cache.magic, sizeof header.magic) == 0 && header.reserved == 0);
    FUZZ_CHECK(header.key_bytes == KEY_BYTES && header.data_bytes == out_bytes);
    FUZZ_CHECK(header.crc32c == file_crc32c(0, data + HEADER_BYTES, size - HEADER_BYTES));
    FUZZ_CHECK(memcmp(data + HEADER_BYTES, KEY, KEY_BYTES) == 0);
    FUZZ_CHECK(memcmp(data + HEADER_BYTES + KEY_BYTES, out, out_bytes) == 0);
}

/* Stores the data next to an older file, which is removed when both exceed the folder's limit. */
static void check_stored(const void *data, size_t bytes)
{
    static const char filler[FILE_BYTES_MAX - 1000];
    void *again = NULL;
    size_t again_bytes = 0;
    fuzz_file_put(older, filler, sizeof filler);
    FUZZ_CHECK(user_cache_store(&cache, NAME, KEY, data, bytes));
    FUZZ_CHECK(user_cache_load(&cache, NAME, KEY, &again, &again_bytes) == USER_CACHE_READ);
    FUZZ_CHECK(again_bytes == bytes && memcmp(again, data, bytes) == 0);
    FUZZ_CHECK(access(older, F_OK) != 0 || bytes + KEY_BYTES + HEADER_BYTES + sizeof filler <= cache.bytes_max);
    free(again);
}

static bool use(const uint8_t *data, size_t size)
{
    void *out = NULL;
    size_t out_bytes = 0;
    fuzz_file_put(path, data, size);
    const bool loaded = user_cache_load(&cache, NAME, KEY, &out, &out_bytes) == USER_CACHE_READ;
    FUZZ_CHECK(access(path, F_OK) == 0); /* a rejected file is replaced, not removed */
    if (loaded) {
        check_accepted(data, size, out, out_bytes);
        check_stored(out, out_bytes);
    }
    free(out);
    fuzz_folder_check();
    return loaded;
}

/* Corrects the checksum; then also the header, but for how key and data share the rest; then everything including the
 * key. */
static void use_put_right(uint8_t *data, size_t size)
{
    struct header header;
    memcpy(&header, data, sizeof header);
    const size_t rest = size - HEADER_BYTES;
    header.crc32c = file_crc32c(0, data + HEADER_BYTES, rest);
    memcpy(data, &header, sizeof header);
    (void)use(data, size);
    memcpy(header.magic, cache.magic, sizeof header.magic);
    header.reserved = 0;
    header.key_bytes = header.key_bytes < rest ? header.key_bytes : KEY_BYTES;
    header.data_bytes = rest - header.key_bytes;
    memcpy(data, &header, sizeof header);
    (void)use(data, size);
    if (rest <= KEY_BYTES)
        return;
    memcpy(data + HEADER_BYTES, KEY, KEY_BYTES);
    header.key_bytes = KEY_BYTES;
    header.data_bytes = rest - KEY_BYTES;
    header.crc32c = file_crc32c(0, data + HEADER_BYTES, rest);
    memcpy(data, &header, sizeof header);
    FUZZ_CHECK(use(data, size) == (size <= FILE_BYTES_MAX));
}

void fuzz_one(struct hostmem *mem, const uint8_t *data, size_t size)
{
    (void)mem;
    open_cache();
    (void)use(data, size);
    if (size >= HEADER_BYTES) {
        uint8_t *copy = malloc(size);
        FUZZ_CHECK(copy != NULL);
        memcpy(copy, data, size);
        use_put_right(copy, size);
        free(copy);
    }
}
