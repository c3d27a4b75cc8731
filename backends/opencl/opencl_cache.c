/* The cache of built programs: one file per key, `NAME.clbin`.
 *
 * A file is a header (magic, lengths, CRC-32C of all that follows), the key in full and the binary.  It is used when owner
 * and mode of folder and file are the user's, the length is exact, the checksum holds and the key is the one asked for; the
 * file's name is only a hash of the key.  Files are replaced atomically; readers see the old one or the new one.
 */
#include "backends/opencl/opencl_cache.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"

#define MAGIC "GTCLBIN1"
#define MAGIC_BYTES 8
#define SUFFIX ".clbin"
#define ENTRIES_MAX 4096
#define FNV_OFFSET UINT64_C(0xcbf29ce484222325)
#define FNV_PRIME UINT64_C(0x100000001b3)

struct header {
    char magic[MAGIC_BYTES];
    uint64_t key_bytes, data_bytes;
    uint32_t crc32c; /* of key and data */
    uint32_t reserved;
};

struct entry {
    char name[64];
    int64_t modified_s;
    uint64_t bytes;
};

/* FNV-1a (Fowler, Noll, Vo), 64 bits: names files; the key in the file is what counts. */
static uint64_t hash_of(const char *key)
{
    uint64_t hash = FNV_OFFSET;
    for (; *key != '\0'; key++)
        hash = (hash ^ (uint8_t)*key) * FNV_PRIME;
    return hash;
}

/* What others own or may write to is not trusted. */
static bool is_own(const struct stat *status)
{
    return status->st_uid == geteuid() && (status->st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

bool opencl_cache_folder(char *folder, bool create)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    char parent[FILE_PATH_MAX];
    struct stat status;
    int length = 0;
    if (cache != NULL && *cache == '/')
        length = snprintf(parent, sizeof parent, "%s/gpt-train", cache);
    else if (home != NULL && *home == '/')
        length = snprintf(parent, sizeof parent, "%s/.cache/gpt-train", home);
    if (length <= 0 || length >= FILE_PATH_MAX - 96)
        return false;
    length = snprintf(folder, FILE_PATH_MAX, "%s/opencl", parent);
    if (length <= 0 || length >= FILE_PATH_MAX)
        return false;
    if (create && !file_is_folder(folder)) {
        char above[FILE_PATH_MAX];
        snprintf(above, sizeof above, "%s", parent);
        *strrchr(above, '/') = '\0';
        (void)mkdir(above, 0700);
        (void)mkdir(parent, 0700);
        (void)mkdir(folder, 0700);
    }
    if (lstat(folder, &status) != 0)
        return false;
    return S_ISDIR(status.st_mode) && is_own(&status) && access(folder, create ? W_OK | X_OK : X_OK) == 0;
}

static bool path_of(const char *key, bool create, char path[static FILE_PATH_MAX])
{
    char folder[FILE_PATH_MAX], name[64];
    if (!opencl_cache_folder(folder, create))
        return false;
    snprintf(name, sizeof name, "%016" PRIx64 SUFFIX, hash_of(key));
    return snprintf(path, FILE_PATH_MAX, "%s/%s", folder, name) < FILE_PATH_MAX;
}

/* The whole file, whose length the header must state.  NULL, with the reason in *why, when it is not to be trusted. */
static uint8_t *file_whole(int fd, const char *path, const struct stat *status, struct header *header, const char **why)
{
    const uint64_t size = (uint64_t)status->st_size;
    *why = "it is not a file of yours alone";
    if (!S_ISREG(status->st_mode) || !is_own(status))
        return NULL;
    *why = "it is too short or too long";
    if (size < sizeof *header || size > OPENCL_CACHE_FILE_BYTES_MAX)
        return NULL;
    uint8_t *bytes = malloc((size_t)size);
    *why = "it cannot be read";
    if (bytes == NULL || pread(fd, bytes, (size_t)size, 0) != (ssize_t)size) {
        free(bytes);
        return NULL;
    }
    memcpy(header, bytes, sizeof *header);
    const uint64_t rest = size - sizeof *header;
    const uint8_t *after = bytes + sizeof *header;
    *why = "its header is not one of ours";
    bool valid = memcmp(header->magic, MAGIC, MAGIC_BYTES) == 0 && header->reserved == 0;
    if (valid) {
        *why = "its length is not the one it states";
        valid = header->key_bytes < OPENCL_KEY_MAX && header->data_bytes <= rest &&
                header->key_bytes == rest - header->data_bytes && header->data_bytes > 0;
    }
    if (valid) {
        *why = "its checksum does not hold";
        valid = file_crc32c(0, after, (size_t)rest) == header->crc32c;
    }
    if (valid)
        return bytes;
    (void)path;
    free(bytes);
    return NULL;
}

bool opencl_cache_load(const char *key, void **out, size_t *out_bytes)
{
    char path[FILE_PATH_MAX];
    struct stat status;
    struct header header;
    const char *why = NULL;
    if (!path_of(key, false, path))
        return false;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return false;
    uint8_t *bytes = fstat(fd, &status) == 0 ? file_whole(fd, path, &status, &header, &why) : NULL;
    close(fd);
    if (bytes == NULL) {
        log_note("%s: %s; the kernels in it are compiled again", path, why != NULL ? why : "it cannot be read");
        return false;
    }
    const size_t key_bytes = (size_t)header.key_bytes, data_bytes = (size_t)header.data_bytes;
    const bool same = key_bytes == strlen(key) && memcmp(bytes + sizeof header, key, key_bytes) == 0;
    if (!same) { /* another key with the same hash; it will be replaced */
        free(bytes);
        return false;
    }
    memmove(bytes, bytes + sizeof header + key_bytes, data_bytes);
    *out = bytes;
    *out_bytes = data_bytes;
    return true;
}

static int by_age(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    if (x->modified_s != y->modified_s)
        return x->modified_s < y->modified_s ? -1 : 1;
    return strcmp(x->name, y->name);
}

/* Removes the oldest files until the folder holds at most the limit less `coming` bytes. */
static void folder_bound(const char *folder, uint64_t coming)
{
    DIR *stream = opendir(folder);
    struct entry *entries = malloc(ENTRIES_MAX * sizeof *entries);
    size_t count = 0;
    uint64_t total = coming;
    if (stream == NULL || entries == NULL) {
        free(entries);
        if (stream != NULL)
            closedir(stream);
        return;
    }
    for (struct dirent *at = readdir(stream); at != NULL && count < ENTRIES_MAX; at = readdir(stream)) {
        const size_t length = strlen(at->d_name), suffix = strlen(SUFFIX);
        struct stat status;
        if (length <= suffix || length >= sizeof entries->name || strcmp(at->d_name + length - suffix, SUFFIX) != 0 ||
            fstatat(dirfd(stream), at->d_name, &status, AT_SYMLINK_NOFOLLOW) != 0)
            continue;
        memcpy(entries[count].name, at->d_name, length + 1);
        entries[count].modified_s = (int64_t)status.st_mtime;
        entries[count].bytes = (uint64_t)status.st_size;
        total += entries[count++].bytes;
    }
    qsort(entries, count, sizeof *entries, by_age);
    for (size_t i = 0; i < count && total > OPENCL_CACHE_BYTES_MAX; i++) {
        if (unlinkat(dirfd(stream), entries[i].name, 0) == 0)
            total -= entries[i].bytes;
    }
    closedir(stream);
    free(entries);
}

void opencl_cache_store(const char *key, const void *data, size_t bytes)
{
    char path[FILE_PATH_MAX], folder[FILE_PATH_MAX];
    const size_t key_bytes = strlen(key);
    struct header header = {.key_bytes = key_bytes, .data_bytes = bytes};
    struct file_replacement file;
    if (bytes == 0 || bytes > OPENCL_CACHE_FILE_BYTES_MAX - OPENCL_KEY_MAX - sizeof header ||
        !opencl_cache_folder(folder, true) || !path_of(key, true, path))
        return;
    folder_bound(folder, bytes + key_bytes + sizeof header);
    memcpy(header.magic, MAGIC, MAGIC_BYTES);
    header.crc32c = file_crc32c(file_crc32c(0, key, key_bytes), data, bytes);
    if (file_replacement_begin(&file, path) != GT_OK)
        return;
    if (file_replacement_write(&file, &header, sizeof header) != GT_OK ||
        file_replacement_write(&file, key, key_bytes) != GT_OK || file_replacement_write(&file, data, bytes) != GT_OK)
        file_replacement_abort(&file);
    else
        (void)file_replacement_commit(&file);
}
