/* The user's cache: one file per name, `HASH.SUFFIX`.
 *
 * A file consists of a header (magic, lengths, CRC-32C of everything after it), the full key and
 * the data.  It is used if the user owns the folder and the file, no one else may write to them,
 * the length is exact, and checksum and key match.  The file's name is only a hash of the name.
 * Files are replaced atomically, so readers see the old file or the new one.
 */
#include "base/user_cache.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/crc32c.h"

#define MAGIC_BYTES 8
#define NAMES_BYTES_MAX 112 /* "/gpt-train", a folder in it, and a file's name */

struct header {
    char magic[MAGIC_BYTES];
    uint64_t key_bytes, data_bytes;
    uint32_t crc32c; /* of key and data */
    uint32_t reserved;
};

/* Regardless of the umask: a group-writable file is not trusted. */
static const mode_t file_mode = 0600;

/* Files that others own or may write to are not trusted. */
static bool is_own(const struct stat *status)
{
    return status->st_uid == geteuid() && (status->st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

/* Writes $XDG_CACHE_HOME (if absolute, else ~/.cache) to `above`.  Returns false when there is no
 * home or the path is too long. */
static bool root_above(char above[static FILE_PATH_MAX])
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int length = 0;
    if (cache != NULL && *cache == '/')
        length = snprintf(above, FILE_PATH_MAX, "%s", cache);
    else if (home != NULL && *home == '/')
        length = snprintf(above, FILE_PATH_MAX, "%s/.cache", home);
    return length > 0 && length < FILE_PATH_MAX - NAMES_BYTES_MAX;
}

bool user_cache_folder(const struct user_cache *cache, char *folder, bool create)
{
    char above[FILE_PATH_MAX];
    struct stat status;
    if (!root_above(above))
        return false;
    const char *root = FILE_IN(above, "gpt-train");
    file_join(folder, root, cache->folder);
    if (create && !file_is_folder(folder)) {
        (void)mkdir(above, 0700);
        (void)mkdir(root, 0700);
        (void)mkdir(folder, 0700);
    }
    if (lstat(folder, &status) != 0)
        return false;
    return S_ISDIR(status.st_mode) && is_own(&status) &&
           access(folder, create ? W_OK | X_OK : X_OK) == 0;
}

static bool path_of(const struct user_cache *cache, const char *name, bool create,
                    char path[static FILE_PATH_MAX])
{
    char folder[FILE_PATH_MAX];
    if (!user_cache_folder(cache, folder, create))
        return false;
    return snprintf(path, FILE_PATH_MAX, "%s/%016" PRIx64 "%s", folder,
                    hash_fnv1a(name, strlen(name)), cache->suffix) <
           FILE_PATH_MAX; /* two names may share a hash: the key in the file decides */
}

/* Returns NULL when the header and the bytes after it are valid, else the fault. */
static const char *fault_of(const struct user_cache *cache, const struct header *header,
                            const uint8_t *after, uint64_t rest)
{
    if (memcmp(header->magic, cache->magic, MAGIC_BYTES) != 0 || header->reserved != 0)
        return "its header is not one of ours";
    if (header->key_bytes >= USER_CACHE_KEY_MAX || header->data_bytes > rest ||
        header->key_bytes != rest - header->data_bytes || header->data_bytes == 0)
        return "its length is not the one it states";
    return file_crc32c(0, after, (size_t)rest) == header->crc32c ? NULL
                                                                 : "its checksum does not match";
}

/* Reads the whole file into malloc'ed memory and checks its header.  If it is not trusted, *why is
 * the reason. */
static enum user_cache_file file_read(const struct user_cache *cache, int fd, struct header *header,
                                      char **out, const char **why)
{
    struct stat status;
    *why = "it cannot be read";
    if (fstat(fd, &status) != 0)
        return USER_CACHE_UNREAD;
    const size_t size = (size_t)status.st_size;
    const bool ours = S_ISREG(status.st_mode) && is_own(&status);
    if (!ours || size > cache->file_bytes_max || size < sizeof *header) {
        *why = !ours                   ? "it is not yours, or others may write to it"
               : size < sizeof *header ? "it is too short"
                                       : "it is too long";
        return USER_CACHE_REFUSED;
    }
    char *bytes = malloc(size);
    if (bytes == NULL || pread(fd, bytes, size, 0) != (ssize_t)size) {
        free(bytes);
        return USER_CACHE_UNREAD;
    }
    memcpy(header, bytes, sizeof *header);
    *why = fault_of(cache, header, (const uint8_t *)bytes + sizeof *header, size - sizeof *header);
    if (*why == NULL) {
        *out = bytes;
        return USER_CACHE_READ;
    }
    free(bytes);
    return USER_CACHE_REFUSED;
}

enum user_cache_file user_cache_load(const struct user_cache *cache, const char *name,
                                     const char *key, void **out, size_t *out_bytes)
{
    char path[FILE_PATH_MAX], *bytes = NULL;
    const char *why = "it cannot be opened";
    struct header header;
    enum user_cache_file found = USER_CACHE_UNREAD;
    if (!path_of(cache, name, false, path))
        return USER_CACHE_ABSENT;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd >= 0) {
        found = file_read(cache, fd, &header, &bytes, &why);
        close(fd);
    } else if (errno == ELOOP) {
        found = USER_CACHE_REFUSED;
        why = "it is a link";
    } else if (errno == ENOENT) {
        return USER_CACHE_ABSENT;
    }
    if (found != USER_CACHE_READ) {
        log_note("%s: %s; %s", path, why, cache->otherwise);
        return found;
    }
    const size_t key_bytes = (size_t)header.key_bytes, data_bytes = (size_t)header.data_bytes;
    const char *stored = bytes + sizeof header;
    if (key_bytes != strlen(key) ||
        memcmp(stored, key, key_bytes) != 0) { /* the caller will replace it */
        if (strcmp(name, key) != 0)
            log_note("%s: was made for %.*s, not for %s; %s", path, (int)key_bytes, stored, key,
                     cache->otherwise);
        free(bytes);
        return USER_CACHE_REFUSED;
    }
    memmove(bytes, bytes + sizeof header + key_bytes, data_bytes);
    *out = bytes;
    *out_bytes = data_bytes;
    return USER_CACHE_READ;
}

/* Returns how many bytes the cache's files have together.  Sets `oldest` to the path of the oldest
 * file, or to "". */
static uint64_t folder_bytes(const struct user_cache *cache, const char *folder,
                             char oldest[static FILE_PATH_MAX])
{
    uint64_t total = 0;
    int64_t oldest_s = 0;
    oldest[0] = '\0';
    DIR *dir = NULL;
    for (const char *name; (name = file_next(folder, &dir, NULL)) != NULL;) {
        const size_t length = strlen(name), suffix = strlen(cache->suffix);
        struct stat status;
        if (length <= suffix || strcmp(name + length - suffix, cache->suffix) != 0 ||
            fstatat(dirfd(dir), name, &status, AT_SYMLINK_NOFOLLOW) != 0)
            continue;
        total += (uint64_t)status.st_size;
        if (oldest[0] != '\0' && (int64_t)status.st_mtime >= oldest_s)
            continue;
        oldest_s = (int64_t)status.st_mtime;
        file_join(oldest, folder, name);
    }
    return total;
}

/* Removes the oldest files until `coming` more bytes fit within the folder's limit. */
static void folder_bound(const struct user_cache *cache, const char *folder, uint64_t coming)
{
    char oldest[FILE_PATH_MAX];
    while (folder_bytes(cache, folder, oldest) + coming > cache->bytes_max && oldest[0] != '\0')
        if (unlink(oldest) != 0)
            break;
}

bool user_cache_store(const struct user_cache *cache, const char *name, const char *key,
                      const void *data, size_t bytes)
{
    char path[FILE_PATH_MAX], folder[FILE_PATH_MAX];
    const size_t key_bytes = strlen(key);
    struct header header = {.key_bytes = key_bytes, .data_bytes = bytes};
    struct file_replacement file;
    if (bytes == 0 || key_bytes >= USER_CACHE_KEY_MAX ||
        bytes > cache->file_bytes_max - USER_CACHE_KEY_MAX - sizeof header ||
        !path_of(cache, name, true, path))
        return false;
    file_folder_of(folder, path);
    file_remove_leftovers(folder, false);
    folder_bound(cache, folder, bytes + key_bytes + sizeof header);
    memcpy(header.magic, cache->magic, MAGIC_BYTES);
    header.crc32c = file_crc32c(file_crc32c(0, key, key_bytes), data, bytes);
    if (file_replacement_begin(&file, path, &file_mode) != GT_OK)
        return false;
    enum gt_status status = file_replacement_write(&file, &header, sizeof header);
    THEN(status, file_replacement_write(&file, key, key_bytes));
    THEN(status, file_replacement_write(&file, data, bytes));
    return file_replacement_end(&file, status) == GT_OK;
}
