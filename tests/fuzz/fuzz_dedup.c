/* Fuzzes the document hashes that a stopped gpt-prepare --dedup stores.
 *
 * The input is the number of entries in the state, a flag that says whether the state has their checksum, the checksum,
 * and the file.  A checksum is tried as given and corrected.  The accepted documents are known afterwards, more can be
 * added, and the result can be restored as the same set.
 */
#include "data/dedup.h"
#include "tests/fuzz/fuzz_folder.h"

#define FIRST_BYTES 6 /* count, flag, checksum */
#define ENTRY_BYTES 16
#define TABLE_BYTES_MAX (64 * sizeof(struct document_hash))

static struct document_hash hash_at(const uint8_t *entry)
{
    struct document_hash hash = {0, 0};
    for (int i = 0; i < 8; i++) {
        hash.low |= (uint64_t)entry[i] << 8 * i;
        hash.high |= (uint64_t)entry[8 + i] << 8 * i;
    }
    return hash;
}

static int64_t size_of(const char *path)
{
    struct stat status;
    FUZZ_CHECK(stat(path, &status) == 0);
    return (int64_t)status.st_size;
}

static bool is_full(const struct dedup *dedup)
{
    return dedup_entries_get(dedup).count == TABLE_BYTES_MAX / ENTRY_BYTES / 8 * 7;
}

static void check_again(struct hostmem *mem, const char *path, struct dedup *dedup)
{
    const struct dedup_entries entries = dedup_entries_get(dedup);
    struct dedup *again = NULL;
    FUZZ_CHECK(dedup_sync(dedup) == GT_OK && size_of(path) == (int64_t)entries.count * ENTRY_BYTES);
    FUZZ_CHECK(dedup_create(mem, path, entries, TABLE_BYTES_MAX, &again) == GT_OK);
    const struct dedup_entries same = dedup_entries_get(again);
    FUZZ_CHECK(same.count == entries.count && same.crc32c == entries.crc32c);
    hostmem_free(again);
}

/* Checks that entries beyond the count in the state are not read. */
static void use(struct hostmem *mem, const char *path, const uint8_t *file, size_t size, struct dedup_entries entries)
{
    struct dedup *dedup = NULL;
    bool is_known = false;
    fuzz_file_put(path, file, size);
    if (dedup_create(mem, path, entries, TABLE_BYTES_MAX, &dedup) != GT_OK)
        return;
    FUZZ_CHECK(entries.count <= size / ENTRY_BYTES && size_of(path) == (int64_t)entries.count * ENTRY_BYTES);
    FUZZ_CHECK(entries.crc32c == file_crc32c(0, file, (size_t)entries.count * ENTRY_BYTES));
    for (size_t i = 0; i < size / ENTRY_BYTES; i++) {
        const struct document_hash hash = hash_at(file + i * ENTRY_BYTES);
        FUZZ_CHECK(dedup_add(dedup, hash, &is_known) == GT_OK);
        FUZZ_CHECK(is_known || i >= entries.count);
        FUZZ_CHECK(dedup_add(dedup, hash, &is_known) == GT_OK);
        FUZZ_CHECK(is_known || is_full(dedup) || (hash.low | hash.high) == 0);
    }
    if (!is_full(dedup))
        check_again(mem, path, dedup);
    hostmem_free(dedup);
}

void fuzz_one(struct hostmem *mem, const uint8_t *data, size_t size)
{
    char path[FILE_PATH_MAX];
    fuzz_folder_make("");
    fuzz_path(path, "seen");
    if (size >= FIRST_BYTES) {
        struct dedup_entries entries = {.count = data[0]};
        const uint8_t *file = data + FIRST_BYTES;
        size -= FIRST_BYTES;
        memcpy(&entries.crc32c, data + 2, sizeof entries.crc32c);
        if (data[1] == 255)
            entries.count = UINT64_MAX / ENTRY_BYTES + 2 + data[0];
        use(mem, path, file, size, entries);
        if (entries.count <= size / ENTRY_BYTES) {
            entries.crc32c = file_crc32c(0, file, (size_t)entries.count * ENTRY_BYTES);
            use(mem, path, file, size, entries);
        }
    }
    fuzz_folder_check();
}
