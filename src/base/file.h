/* Files: atomic replacement, exact positional reads, locks, checksums.
 *
 * A replacement is written to a temporary file in the same folder, synced and renamed over the
 * target; then the folder is synced.  A reader therefore sees the old file or the new one, never a
 * mixture, even after a kill or a power loss. Every function logs the failing call with the path
 * and errno's text.
 */
#ifndef GPT_TRAIN_BASE_FILE_H
#define GPT_TRAIN_BASE_FILE_H

#include <dirent.h>
#include <sys/types.h>

#include "base/bytes.h"
#include "base/status.h"

/* One more than PATH_MAX, so a path that was cut to fit has a length that the system refuses: every
 * call with it fails with ENAMETOOLONG. */
#define FILE_PATH_MAX 4097
/* The path of a name in a folder, which lives as long as the enclosing block. */
#define FILE_IN(folder, name) file_join((char[FILE_PATH_MAX]){0}, folder, name)

/* A replacement in progress.  The caller provides the struct; nothing is allocated. */
struct file_replacement {
    int fd; /* -1 when closed */
    int dir_fd;
    bool aside_exists; /* abort must remove the temporary file */
    bool in_place;     /* the new file has replaced the old one, or may have; valid even if the end
                          failed */
    uint64_t size_bytes;
    uint32_t crc32c; /* of everything written so far */
    char path[FILE_PATH_MAX];
    char aside[FILE_PATH_MAX];
};

/* Logs "PATH: cannot VERB: errno's text".  Returns GT_IO. */
enum gt_status file_error(const char *path, const char *verb);
/* Creates the temporary file `path`.tmp-DIGITS, with a random number.  Its permissions are *mode,
 * regardless of the umask; if `mode` is NULL, those of the file being replaced, else 0666 less
 * umask.  A symbolic link at `path` is replaced, not followed.  On failure nothing is left to
 * abort.  Errors: GT_IO. */
enum gt_status file_replacement_begin(struct file_replacement *file, const char *path,
                                      const mode_t *mode);
/* Appends; handles short writes and EINTR.  Errors: GT_IO, after which only abort is allowed. */
enum gt_status file_replacement_write(struct file_replacement *file, const void *bytes,
                                      size_t count);
/* Removes the temporary file.  Safe after a failed begin or the end. */
void file_replacement_abort(struct file_replacement *file);
/* Ends the writing, whose status is `status`.  GT_OK: calls fsync, renames, and syncs the folder;
 * fails if another program has replaced the temporary file.  On failure the temporary file is
 * removed and the target is unchanged, unless only the folder's sync fails: the new file is then in
 * place, but may not survive a power loss.  Returns the first failure.  Errors: GT_IO. */
enum gt_status file_replacement_end(struct file_replacement *file, enum gt_status status);
/* Begin, write and end in one call, for small files. */
enum gt_status file_replace(const char *path, const void *bytes, size_t count);
/* Copies `from` to `to` with its permissions, at most the first `limit_bytes`. */
enum gt_status file_copy(const char *from, const char *to, uint64_t limit_bytes);

/* Writes all bytes at the descriptor's offset; handles short writes and EINTR.  Errors: GT_IO. */
enum gt_status file_write_all(int fd, const char *path, const void *bytes, size_t count);
/* Opens a regular file read-only with O_CLOEXEC.  Errors: GT_IO. */
enum gt_status file_open_read(const char *path, int *out_fd, uint64_t *out_size_bytes);
/* As above, but a missing file is not an error: *out_fd is -1 then. */
enum gt_status file_open_read_if_there(const char *path, int *out_fd, uint64_t *out_size_bytes);
/* Reads exactly `count` bytes at `offset`.  Returns GT_DATA when the file ends early ("was
 * truncated while it was being read").  `path` is for the message. */
enum gt_status file_read_at(int fd, const char *path, uint64_t offset, void *out, size_t count);
/* Reads a whole file of at most `limit` bytes into malloc'ed memory with a terminating zero (free()
 * it).  Errors: GT_IO, GT_DATA when larger, GT_NO_MEMORY.  For start-up only. */
enum gt_status file_read_all(const char *path, size_t limit, char **out, size_t *out_count);

/* Sets *out_exists to whether `path` exists.  Errors: GT_IO when that cannot be determined. */
enum gt_status file_stat_exists(const char *path, bool *out_exists);
/* As above, but an error counts as absent.  Do not use it to decide that something may be removed
 * or replaced. */
bool file_exists(const char *path);
bool file_is_folder(const char *path);
/* Returns true when both paths exist and lead to the same file or folder, whatever their spelling.
 */
bool file_is_same(const char *path, const char *other);
/* Returns true when `path` is a regular file with this size and checksum.  Logs nothing when it is
 * absent. */
bool file_matches(const char *path, uint64_t size_bytes, uint32_t crc32c);
/* Creates `path` and its parents, and syncs the parent of each new folder.  Errors: GT_IO. */
enum gt_status file_make_folders(const char *path);
/* Copies `path` without slashes at its end, except for the root.  Errors: GT_USAGE when it is too
 * long. */
enum gt_status file_trim(char out[static FILE_PATH_MAX], const char *path);
/* Returns the part of `path` after its last slash. */
const char *file_name_of(const char *path);
/* Writes the folder that contains `path` to `out`, "." and "/" included.  `path` is shorter than
 * FILE_PATH_MAX. */
void file_folder_of(char out[static FILE_PATH_MAX], const char *path);
/* Writes "folder/name" to `out`, cut to fit.  Returns `out`. */
const char *file_join(char out[static FILE_PATH_MAX], const char *folder, const char *name);
/* Writes `path` to `out`, cut to fit, with the home folder in place of "~" before its first slash,
 * and returns `out`.  A shell does the same, but not after '='.  Returns `path` itself if it has no
 * "~" there, or if HOME is not set. */
const char *file_expand_home(char out[static FILE_PATH_MAX], const char *path);
/* Writes `path` as one word for the shell, in single quotes if needed, truncated to `size` bytes.
 * Returns `out`. */
char *file_shell_quote(char *out, size_t size, const char *path);
/* Returns the next name in a folder, "." and ".." among them; *dir is NULL before the first.
 * Returns NULL after the last one, after an error, or if *status is no longer GT_OK, and closes
 * *dir.  An error sets *status to GT_IO; with a NULL `status`, it only ends the list. */
const char *file_next(const char *folder, DIR **dir, enum gt_status *status);
/* Syncs a folder.  Errors: GT_IO. */
enum gt_status file_sync_folder(const char *path);
/* Syncs the parent folder of `path`.  Until then, a power loss may lose a new folder with
 * everything in it.  `path` must not end in a slash. */
enum gt_status file_sync_name(const char *path);
/* Removes the temporary files that a killed writer left in `folder`.  If the caller holds the
 * folder's lock, none of them belongs to a live writer.  If not, only files that were not written
 * to for an hour are removed. */
void file_remove_leftovers(const char *folder, bool is_locked);

/* Takes an exclusive advisory lock (flock) on `path` (created if absent), held until file_unlock()
 * or the end of the process.  Only its holder may remove the file, and must do so before unlocking.
 * Errors: GT_IO; GT_USAGE when another process holds the lock (its process id is logged if known),
 * or when the file is not a lock file: not regular, or with content other than a process id. */
enum gt_status file_lock(const char *path, int *out_fd);
void file_unlock(int fd);

/* The beginning of a Git LFS pointer, which a clone without Git LFS leaves in place of a file, and
 * what to say about it. */
#define FILE_LFS_HEAD "version https://git-lfs"
#define FILE_LFS_ADVICE \
    "is a pointer of Git LFS, without the file: git lfs pull fetches it, or hf download the model"

#endif
