/* Files: atomic replacement, exact positional reads, folders, locks.
 *
 * A temporary file is opened relative to a descriptor of its folder, so that write, rename and sync
 * affect the same folder even if it is moved in the meantime.  The function in which a call fails
 * logs the path, the call and errno's text.  Locks are flock(2): the kernel releases them however
 * the process ends.  Nothing here follows a symbolic link when it creates a file, and no file name
 * is ever taken from a file's content.
 */
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/crc32c.h"

_Static_assert(sizeof(off_t) >= 8, "files over 2 GiB need a 64-bit off_t (-D_FILE_OFFSET_BITS=64)");

enum {
    ASIDE_ATTEMPTS = 16,
    ASIDE_SUFFIX_BYTES = 16, /* ".tmp-", at most ten digits, the terminating zero */
    LOCK_ATTEMPTS = 16,
    LOCK_BYTES_MAX = 23,   /* the longest process id and a newline */
    LEFTOVER_AGE_S = 3600, /* longer than writing a small file takes */
    PIECE_BYTES = 16384,
    SHOWN_MAX = 3000
};

enum gt_status file_error(const char *path, const char *verb)
{
    const char *cut =
        strlen(path) > SHOWN_MAX ? "..." : ""; /* else the log would cut off the reason */
    return FAIL(GT_IO, "%.*s%s: cannot %s: %s", SHOWN_MAX, path, cut, verb, strerror(errno));
}

enum gt_status file_trim(char out[static FILE_PATH_MAX], const char *path)
{
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/')
        length--;
    if (length >= FILE_PATH_MAX)
        return FAIL(GT_USAGE, "%.100s...: the path is too long", path);
    memcpy(out, path, length);
    out[length] = '\0';
    return GT_OK;
}

const char *file_name_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

void file_folder_of(char out[static FILE_PATH_MAX], const char *path)
{
    const size_t length = (size_t)(file_name_of(path) - path);
    assert(length < FILE_PATH_MAX);
    if (length == 0) {
        memcpy(out, ".", 2);
        return;
    }
    const size_t kept = length > 1 ? length - 1 : 1; /* keep the slash only for the root */
    memcpy(out, path, kept);
    out[kept] = '\0';
}

static int fsync_retry(int fd)
{
    int rc;
    do {
        rc = fsync(fd);
    } while (rc != 0 && errno == EINTR);
    return rc;
}

/* Syncs a folder.  File systems without this operation fail with EINVAL and have nothing to sync.
 */
static int fsync_folder(int fd)
{
    return fsync_retry(fd) == 0 || errno == EINVAL ? 0 : -1;
}

/* Opens the temporary file with `mode`.  An existing file of the same name belongs to another
 * writer, perhaps a dead one, and is left alone. */
static int aside_open(struct file_replacement *file, mode_t mode)
{
    const int flags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW;
    const size_t length = strlen(file->path);
    int fd = -1;
    memcpy(file->aside, file->path, length);
    for (int attempt = 0; attempt < ASIDE_ATTEMPTS; attempt++) {
        uint32_t number = (uint32_t)attempt; /* if there is no random one */
        (void)!getentropy(&number, sizeof number);
        (void)snprintf(file->aside + length, ASIDE_SUFFIX_BYTES, ".tmp-%08" PRIu32, number);
        fd = openat(file->dir_fd, file_name_of(file->aside), flags, mode);
        if (fd >= 0 || errno != EEXIST)
            break;
    }
    return fd;
}

/* Sets the permissions of the temporary file to exactly `mode`, regardless of the umask. */
static enum gt_status mode_keep(const struct file_replacement *file, mode_t mode)
{
    struct stat now;
    if (fstat(file->fd, &now) != 0)
        return file_error(file->aside, "read its mode");
    if ((now.st_mode & 0777) != mode && fchmod(file->fd, mode) != 0)
        return file_error(file->aside, "set its mode");
    return GT_OK;
}

/* Opens the temporary file with the mode of the file to be replaced, or with exactly *mode. */
static enum gt_status replacement_open(struct file_replacement *file, const mode_t *mode)
{
    char folder[FILE_PATH_MAX];
    file_folder_of(folder, file->path);
    file->dir_fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (file->dir_fd < 0)
        return file_error(folder, "open the folder");
    struct stat old;
    const bool exists =
        fstatat(file->dir_fd, file_name_of(file->path), &old, AT_SYMLINK_NOFOLLOW) == 0;
    if (!exists && errno != ENOENT)
        return file_error(file->path, "read its status");
    if (exists && !S_ISREG(old.st_mode) && !S_ISLNK(old.st_mode))
        return FAIL(GT_IO, "%s: cannot replace: it is not a regular file", file->path);
    const bool is_given = mode != NULL || (exists && S_ISREG(old.st_mode));
    const mode_t wanted = mode != NULL ? *mode : is_given ? old.st_mode & 0777 : 0666;
    file->fd = aside_open(file, wanted);
    if (file->fd < 0)
        return file_error(file->aside, "create");
    file->aside_exists = true;
    return is_given ? mode_keep(file, wanted) : GT_OK;
}

enum gt_status file_replacement_begin(struct file_replacement *file, const char *path,
                                      const mode_t *mode)
{
    const size_t length = strlen(path);
    *file = (struct file_replacement){.fd = -1, .dir_fd = -1};
    if (*file_name_of(path) == '\0')
        return FAIL(GT_IO, "%s: cannot write: this names a folder, not a file", path);
    if (length > FILE_PATH_MAX - ASIDE_SUFFIX_BYTES)
        return FAIL(GT_IO,
                    "cannot write: the path has %zu bytes, more than the %d allowed: %.100s...",
                    length, FILE_PATH_MAX - ASIDE_SUFFIX_BYTES, path);
    memcpy(file->path, path, length + 1);
    enum gt_status status = replacement_open(file, mode);
    if (status != GT_OK)
        file_replacement_abort(file);
    return status;
}

enum gt_status file_write_all(int fd, const char *path, const void *bytes, size_t count)
{
    const char *next = bytes;
    size_t left = count;
    while (left > 0) {
        const ssize_t written = write(fd, next, left);
        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0)
            return file_error(path, "write");
        if (written == 0)
            return FAIL(GT_IO, "%s: cannot write: the system took 0 of %zu bytes", path, left);
        next += written;
        left -= (size_t)written;
    }
    return GT_OK;
}

enum gt_status file_replacement_write(struct file_replacement *file, const void *bytes,
                                      size_t count)
{
    assert(file->fd >= 0);
    TRY(file_write_all(file->fd, file->aside, bytes, count));
    file->size_bytes += count;
    file->crc32c = file_crc32c(file->crc32c, bytes, count);
    return GT_OK;
}

/* Returns true when `name` in the folder `dir_fd` is still the file that was opened. */
static bool is_same_file(int fd, int dir_fd, const char *name)
{
    struct stat opened, there;
    return fstat(fd, &opened) == 0 && fstatat(dir_fd, name, &there, AT_SYMLINK_NOFOLLOW) == 0 &&
           opened.st_dev == there.st_dev && opened.st_ino == there.st_ino;
}

static enum gt_status replacement_finish(struct file_replacement *file)
{
    const char *aside = file_name_of(file->aside);
    if (fsync_retry(file->fd) != 0)
        return file_error(file->aside, "sync");
    if (!is_same_file(file->fd, file->dir_fd, aside)) { /* others may write in the folder */
        file->aside_exists = false;                     /* not ours, so do not remove it */
        return FAIL(
            GT_IO,
            "%s: another program replaced this file, or removed it, while it was being written",
            file->aside);
    }
    const int rc = close(file->fd);
    file->fd = -1;
    if (rc != 0 && errno != EINTR)
        return file_error(file->aside, "close");
    if (renameat(file->dir_fd, aside, file->dir_fd, file_name_of(file->path)) != 0) {
        struct stat info;
        enum gt_status status = file_error(file->path, "rename the new file over it");
        /* A rename on a network file system may succeed and yet report an error. */
        file->in_place = fstatat(file->dir_fd, aside, &info, AT_SYMLINK_NOFOLLOW) != 0;
        return status;
    }
    file->aside_exists = false;
    file->in_place = true;
    if (fsync_folder(file->dir_fd) != 0)
        return file_error(file->path, "sync the folder of");
    return GT_OK;
}

void file_replacement_abort(struct file_replacement *file)
{
    if (file->aside_exists)
        (void)unlinkat(file->dir_fd, file_name_of(file->aside), 0);
    if (file->fd >= 0)
        (void)close(file->fd);
    if (file->dir_fd >= 0)
        (void)close(file->dir_fd);
    file->aside_exists = false;
    file->fd = -1;
    file->dir_fd = -1;
}

enum gt_status file_replacement_end(struct file_replacement *file, enum gt_status status)
{
    THEN(status, replacement_finish(file));
    file_replacement_abort(file); /* after success this only closes the folder's descriptor */
    return status;
}

enum gt_status file_replace(const char *path, const void *bytes, size_t count)
{
    struct file_replacement file;
    TRY(file_replacement_begin(&file, path, NULL));
    return file_replacement_end(&file, file_replacement_write(&file, bytes, count));
}

enum gt_status file_open_read(const char *path, int *out_fd, uint64_t *out_size_bytes)
{
    int fd = -1;
    TRY(file_open_read_if_there(path, &fd, out_size_bytes));
    if (fd < 0) {
        errno = ENOENT;
        return file_error(path, "open");
    }
    *out_fd = fd;
    return GT_OK;
}

enum gt_status file_open_read_if_there(const char *path, int *out_fd, uint64_t *out_size_bytes)
{
    /* Without O_NONBLOCK, opening a FIFO would wait for a writer.  Regular files ignore the flag.
     */
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0 && errno == ENOENT) {
        *out_fd = -1;
        return GT_OK;
    }
    if (fd < 0)
        return file_error(path, "open");
    struct stat info = {0}; /* MemorySanitizer does not see what the kernel fills in */
    enum gt_status status = fstat(fd, &info) == 0 ? GT_OK : file_error(path, "read its size");
    if (status == GT_OK && !S_ISREG(info.st_mode))
        status = FAIL(GT_IO, "%s: cannot read: it is %s, not a regular file", path,
                      S_ISDIR(info.st_mode) ? "a folder" : "a device or pipe");
    if (status == GT_OK)
        *out_size_bytes = (uint64_t)info.st_size;
    return FINISH(status, out_fd, fd, (void)close);
}

enum gt_status file_read_at(int fd, const char *path, uint64_t offset, void *out, size_t count)
{
    if (offset > INT64_MAX || count > INT64_MAX - offset)
        return FAIL(GT_DATA, "%s: cannot read %zu bytes at %llu: no file is that long", path, count,
                    (unsigned long long)offset);
    char *next = out;
    size_t left = count;
    while (left > 0) {
        const uint64_t at = offset + (count - left);
        const ssize_t got = pread(fd, next, left, (off_t)at);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return file_error(path, "read");
        if (got == 0)
            return FAIL(
                GT_DATA,
                "%s: was truncated while it was being read: %zu bytes are needed at %llu, the file ends at "
                "%llu",
                path, count, (unsigned long long)offset, (unsigned long long)at);
        next += got;
        left -= (size_t)got;
    }
    return GT_OK;
}

enum gt_status file_read_all(const char *path, size_t limit, char **out, size_t *out_count)
{
    int fd;
    uint64_t size_bytes;
    assert(limit < SIZE_MAX);
    TRY(file_open_read(path, &fd, &size_bytes));
    const size_t count = (size_t)size_bytes;
    char *text = size_bytes <= limit ? calloc(count + 1, 1) : NULL;
    enum gt_status status = GT_OK;
    if (size_bytes > limit)
        status = FAIL(GT_DATA, "%s: %" PRIu64 " bytes long, at most %zu expected", path, size_bytes,
                      limit);
    else if (text == NULL)
        status = FAIL(GT_NO_MEMORY, "%s: out of memory: %zu bytes to read it", path, count + 1);
    THEN(status, file_read_at(fd, path, 0, text, count));
    (void)close(fd);
    if (status == GT_OK)
        *out_count = count;
    return FINISH(status, out, text, free);
}

enum gt_status file_stat_exists(const char *path, bool *out_exists)
{
    struct stat info;
    *out_exists = stat(path, &info) == 0;
    return *out_exists || errno == ENOENT || errno == ENOTDIR ? GT_OK
                                                              : file_error(path, "read its status");
}

bool file_exists(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0;
}

/* Reads a file piece by piece: adds it to `copy`, or continues its checksum if that is NULL. */
static enum gt_status pieces_read(int fd, const char *path, uint64_t size_bytes, uint32_t *crc32c,
                                  struct file_replacement *copy)
{
    char piece[PIECE_BYTES];
    for (uint64_t at = 0; at < size_bytes;) {
        const size_t count =
            size_bytes - at < sizeof piece ? (size_t)(size_bytes - at) : sizeof piece;
        TRY(file_read_at(fd, path, at, piece, count));
        if (copy != NULL)
            TRY(file_replacement_write(copy, piece, count));
        else
            *crc32c = file_crc32c(*crc32c, piece, count);
        at += count;
    }
    return GT_OK;
}

bool file_matches(const char *path, uint64_t size_bytes, uint32_t crc32c)
{
    int fd;
    uint64_t actual_bytes;
    uint32_t crc = 0;
    struct stat info;
    if (lstat(path, &info) != 0 || !S_ISREG(info.st_mode) ||
        file_open_read(path, &fd, &actual_bytes) != GT_OK)
        return false;
    const bool same =
        actual_bytes == size_bytes && pieces_read(fd, path, size_bytes, &crc, NULL) == GT_OK;
    (void)close(fd);
    return same && crc == crc32c;
}

enum gt_status file_copy(const char *from, const char *to, uint64_t limit_bytes)
{
    int fd;
    uint64_t size_bytes;
    struct file_replacement file;
    struct stat info = {0};
    TRY(file_open_read(from, &fd, &size_bytes));
    const mode_t mode = fstat(fd, &info) == 0 ? info.st_mode & 0777 : 0600;
    const uint64_t kept_bytes = size_bytes < limit_bytes ? size_bytes : limit_bytes;
    enum gt_status status = file_replacement_begin(&file, to, &mode);
    THEN(status, file_replacement_end(&file, pieces_read(fd, from, kept_bytes, NULL, &file)));
    (void)close(fd);
    return status;
}

bool file_is_folder(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

bool file_is_same(const char *path, const char *other)
{
    struct stat a, b;
    return stat(path, &a) == 0 && stat(other, &b) == 0 && a.st_dev == b.st_dev &&
           a.st_ino == b.st_ino;
}

/* Creates one level.  Any error is ignored if the folder exists, since mkdir may then fail with
 * EACCES or EROFS. */
static enum gt_status make_folder(const char *path)
{
    if (mkdir(path, 0777) == 0)
        return file_sync_name(path);
    const int cause = errno;
    if (file_is_folder(path))
        return GT_OK;
    struct stat info;
    if (cause == EEXIST && lstat(path, &info) == 0 && S_ISLNK(info.st_mode) && !file_exists(path))
        return FAIL(GT_IO, "%s: cannot create the folder: a broken link has this name", path);
    errno = cause == EEXIST ? ENOTDIR : cause;
    return file_error(path, "create the folder");
}

enum gt_status file_make_folders(const char *path)
{
    char part[FILE_PATH_MAX];
    size_t length = strlen(path);
    if (length == 0 || length >= sizeof part)
        return FAIL(GT_IO,
                    "cannot create the folder: the path has %zu bytes, 1 to %d are allowed: %.100s",
                    length, FILE_PATH_MAX - 1, path);
    memcpy(part, path, length + 1);
    while (length > 1 && part[length - 1] == '/')
        part[--length] = '\0';
    for (size_t i = 1; i < length; i++) {
        if (part[i] != '/' || part[i - 1] == '/')
            continue;
        part[i] = '\0';
        TRY(make_folder(part));
        part[i] = '/';
    }
    return make_folder(part);
}

const char *file_expand_home(char out[static FILE_PATH_MAX], const char *path)
{
    const char *home = getenv("HOME");
    if (home == NULL || home[0] == '\0' || path[0] != '~' || (path[1] != '/' && path[1] != '\0'))
        return path;
    (void)snprintf(out, FILE_PATH_MAX, "%s%s", home, path + 1);
    return out;
}

char *file_shell_quote(char *out, size_t size, const char *path)
{
    static const char plain[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=:,.@%/";
    const bool bare = path[0] != '\0' && path[strspn(path, plain)] == '\0';
    size_t used = 0;
    assert(size >= 8);
    if (!bare)
        out[used++] = '\'';
    for (; *path != '\0' && used + 6 < size; path++) {
        const char *piece = *path == '\'' ? "'\\''" : (char[2]){*path, '\0'};
        memcpy(out + used, piece, strlen(piece));
        used += strlen(piece);
    }
    memcpy(out + used, bare ? "" : "'", bare ? 1 : 2);
    return out;
}

const char *file_join(char out[static FILE_PATH_MAX], const char *folder, const char *name)
{
    const bool is_open = folder[0] != '\0' && *file_name_of(folder) != '\0';
    (void)snprintf(out, FILE_PATH_MAX, "%s%s%s", folder, is_open ? "/" : "", name);
    return out;
}

const char *file_next(const char *folder, DIR **dir, enum gt_status *status)
{
    errno = 0;
    if (*dir == NULL)
        *dir = opendir(folder);
    const bool goes_on = *dir != NULL && (status == NULL || *status == GT_OK);
    const struct dirent *entry = goes_on ? readdir(*dir) : NULL;
    if (entry != NULL)
        return entry->d_name;
    if (status != NULL && *status == GT_OK && errno != 0)
        *status = file_error(folder, "list this folder");
    if (*dir != NULL)
        (void)closedir(*dir);
    *dir = NULL;
    return NULL;
}

enum gt_status file_sync_folder(const char *path)
{
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return file_error(path, "open the folder");
    enum gt_status status = fsync_folder(fd) == 0 ? GT_OK : file_error(path, "sync the folder");
    (void)close(fd);
    return status;
}

enum gt_status file_sync_name(const char *path)
{
    char parent[FILE_PATH_MAX];
    file_folder_of(parent, path);
    return file_sync_folder(parent);
}

/* Returns true for "NAME.tmp-DIGITS", and for "NAME.tmp-DIGITS-ID", as earlier releases named them.
 */
static bool is_leftover(const char *name)
{
    static const char mark[] = ".tmp-", digits[] = "0123456789";
    const char *found = strstr(name + (name[0] != '\0'), mark), *end;
    if (found == NULL)
        return false;
    found += sizeof mark - 1;
    end = found + strspn(found, digits);
    if (end > found && end[0] == '-' && end[1] != '\0')
        end += 1 + strspn(end + 1, digits);
    return end > found && end[0] == '\0';
}

void file_remove_leftovers(const char *folder, bool is_locked)
{
    DIR *dir = NULL;
    for (const char *name; (name = file_next(folder, &dir, NULL)) != NULL;) {
        struct stat info;
        if (!is_leftover(name) || fstatat(dirfd(dir), name, &info, AT_SYMLINK_NOFOLLOW) != 0 ||
            !S_ISREG(info.st_mode))
            continue;
        if (is_locked || (int64_t)time(NULL) - (int64_t)info.st_mtime >= LEFTOVER_AGE_S)
            (void)unlinkat(dirfd(dir), name, 0);
    }
}

static enum gt_status lock_refused(int fd, const char *path)
{
    if (errno != EWOULDBLOCK)
        return file_error(path, "lock");
    char text[24] = ""; /* the process id that the holder wrote */
    const long pid = pread(fd, text, sizeof text - 1, 0) > 0 ? strtol(text, NULL, 10) : 0;
    if (pid > 0)
        return FAIL(GT_USAGE, ERROR_LOCKED "%s: is locked by process %ld, which is still running",
                    path, pid);
    return FAIL(GT_USAGE, ERROR_LOCKED "%s: is locked by another process", path);
}

/* Writes this process's id into the locked file, for the error line of other processes.  The lock
 * works without it, so a failure, such as a full disk, is not an error. */
static void lock_sign(int fd)
{
    const char *text = TEXT(24, "%ld\n", (long)getpid());
    (void)!(ftruncate(fd, 0) == 0 && pwrite(fd, text, strlen(text), 0) > 0);
}

static enum gt_status lock_open(const char *path, int *out_fd)
{
    const int fd =
        open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0666);
    if (fd < 0)
        return file_error(path, "open the lock file");
    int rc;
    do {
        rc = flock(fd, LOCK_EX | LOCK_NB);
    } while (rc != 0 && errno == EINTR);
    if (rc != 0) {
        enum gt_status status = lock_refused(fd, path);
        (void)close(fd);
        return status;
    }
    *out_fd = fd;
    return GT_OK;
}

/* Checks that the file, which is about to be truncated, is a lock file.  A power loss may have left
 * zeros in it. */
static enum gt_status lock_check(int fd, const char *path)
{
    char text[LOCK_BYTES_MAX + 1];
    struct stat info;
    if (fstat(fd, &info) != 0)
        return file_error(path, "read the status of the lock file");
    const ssize_t count = S_ISREG(info.st_mode) ? pread(fd, text, sizeof text, 0) : 0;
    if (count < 0)
        return file_error(path, "read the lock file");
    bool is_ours = count <= LOCK_BYTES_MAX;
    for (ssize_t i = 0; i < count; i++)
        is_ours = is_ours && memchr("0123456789\n", text[i], 12) != NULL; /* or its zero */
    if (is_ours && S_ISREG(info.st_mode))
        return GT_OK;
    return FAIL(
        GT_USAGE, "%s: cannot be used as the lock file: it %s; use another folder, or move it away",
        path, is_ours ? "is not a regular file" : "holds something other than a process id");
}

enum gt_status file_lock(const char *path, int *out_fd)
{
    int fd;
    for (int attempt = 0; attempt < LOCK_ATTEMPTS; attempt++) {
        TRY(lock_open(path, &fd));
        if (is_same_file(fd, AT_FDCWD, path)) { /* its last holder may have removed it in between */
            const enum gt_status status = lock_check(fd, path);
            if (status == GT_OK)
                lock_sign(fd);
            return FINISH(status, out_fd, fd, (void)close);
        }
        (void)close(fd);
    }
    return FAIL(GT_IO,
                "%s: cannot lock: another program keeps replacing the file, or it cannot be read",
                path);
}

void file_unlock(int fd)
{
    if (fd >= 0)
        (void)close(fd); /* the stale id in the file is harmless: the next holder overwrites it */
}
