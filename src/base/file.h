/* Files: atomic replacement, exact positional reads, locks.
 *
 * A replacement is written aside in the same folder, synced, renamed over the target, and the folder is synced, so a
 * reader sees the old file or the new one and never a mixture, through kills and power loss.  Every function logs the
 * failing call with the path and errno's text.
 */
#ifndef GPT_TRAIN_BASE_FILE_H
#define GPT_TRAIN_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/status.h"

#define FILE_PATH_MAX 4096
#define FILE_ASIDE_SUFFIX_BYTES 32 /* ".tmp-", eight digits, "-", the longest process id, the zero */

/* A file being written aside.  The struct is the caller's; nothing is allocated. */
struct file_replacement {
    int fd; /* -1 when closed */
    int dir_fd;
    bool aside_exists; /* whether abort has a file to remove */
    bool in_place; /* whether the new file has replaced the old one, or that is not known: also where commit failed */
    uint64_t size_bytes;
    uint32_t crc32c; /* of everything written so far */
    char path[FILE_PATH_MAX];
    char aside[FILE_PATH_MAX];
};

/* ".tmp-DIGITS-PID", what a name aside ends with: eight digits that another process hardly has at this time, be it of the same id
 * in another container.  Where the name is there already, the next attempt has others. */
void file_aside_suffix(uint32_t attempt, char suffix[static FILE_ASIDE_SUFFIX_BYTES]);
/* Opens `path`.tmp-DIGITS-PID aside, of which no other writer has the digits, be it of the same id in another container.  The
 * mode is that of the file being replaced, else 0666 less umask.  A symbolic link at `path` is replaced, not followed.  On
 * failure nothing is left to abort.  Errors: GT_IO. */
enum gt_status file_replacement_begin(struct file_replacement *file, const char *path);
/* The same, with exactly these permissions, whatever the umask and the file being replaced have; NULL for none in particular. */
enum gt_status file_replacement_begin_mode(struct file_replacement *file, const char *path, const mode_t *mode);
/* Appends; handles short writes and EINTR.  Errors: GT_IO, after which only abort is allowed. */
enum gt_status file_replacement_write(struct file_replacement *file, const void *bytes, size_t count);
/* fsync, rename, fsync of the folder; an error where the file aside is no longer the one that was written.  On failure the
 * aside file is gone and the target untouched, but for a failing sync of the folder: the new file is in place then, and may
 * not survive a power loss.  Errors: GT_IO. */
enum gt_status file_replacement_commit(struct file_replacement *file);
/* Removes the aside file.  Safe after a failed begin or commit. */
void file_replacement_abort(struct file_replacement *file);
/* The three steps at once, for small files. */
enum gt_status file_replace(const char *path, const void *bytes, size_t count);
/* The same with what the file `from` holds, or its first `limit_bytes`, and with its permissions. */
enum gt_status file_copy(const char *from, const char *to, uint64_t limit_bytes);

/* Read-only, O_CLOEXEC, regular files only.  Errors: GT_IO. */
enum gt_status file_open_read(const char *path, int *out_fd, uint64_t *out_size_bytes);
/* The same; a file that is not there is no error: *out_fd is -1 then. */
enum gt_status file_open_read_if_there(const char *path, int *out_fd, uint64_t *out_size_bytes);
/* Exactly `count` bytes at `offset`; a file that ends early is GT_DATA ("was truncated while it was read").
 * `path` is for the message. */
enum gt_status file_read_at(int fd, const char *path, uint64_t offset, void *out, size_t count);
/* A whole file of at most `limit` bytes into malloc'ed memory with a terminating zero (free() it).  Errors: GT_IO,
 * GT_DATA when larger, GT_NO_MEMORY.  For start-up only. */
enum gt_status file_read_all(const char *path, size_t limit, char **out, size_t *out_count);

/* Whether something is at `path`.  Errors: GT_IO where that cannot be told. */
enum gt_status file_look(const char *path, bool *out_exists);
/* The same where no harm is done by taking what cannot be looked at for absent: nothing may be removed or replaced for it. */
bool file_exists(const char *path);
bool file_is_folder(const char *path);
/* Whether `path` is a regular file of this length and checksum.  Logs nothing when it is absent. */
bool file_matches(const char *path, uint64_t size_bytes, uint32_t crc32c);
/* Creates `path` and its parents, and syncs the folder that each new one lies in.  Errors: GT_IO. */
enum gt_status file_make_folders(const char *path);
/* "folder/name" into `out` of FILE_PATH_MAX bytes.  Errors: GT_USAGE when it is too long. */
enum gt_status file_join(char out[static FILE_PATH_MAX], const char *folder, const char *name);
/* `path` as a word for the shell, in single quotes where it needs them; cut at `size` bytes.  Returns `out`. */
char *file_shell_quote(char *out, size_t size, const char *path);
/* fsync of a folder.  Errors: GT_IO. */
enum gt_status file_sync_folder(const char *path);
/* The same of the folder that `path` lies in: until then, a power cut may take a new folder with all that is in it.  `path`
 * has no slash at its end. */
enum gt_status file_sync_name(const char *path);
/* Removes regular files "NAME.tmp-DIGITS-PID" and "NAME.tmp-PID" left in `folder` by a killed writer.  The caller holds the
 * folder's lock, so that no live writer owns one. */
void file_remove_leftovers(const char *folder);
/* Of small files in a folder without a lock: those of processes that are no more, and an hour old, since on a network the
 * process may live on another machine. */
void file_remove_dead_leftovers(const char *folder);

/* An exclusive advisory lock (flock) on `path` (created if absent), held until file_unlock() or the process's end.  Only its
 * holder may remove the file, and does so before it unlocks.  Errors: GT_IO; GT_USAGE when another process holds it
 * (logged with its process id where known), or where the file is none that was made for this: not regular, with other names,
 * or with another content than a process id. */
enum gt_status file_lock(const char *path, int *out_fd);
void file_unlock(int fd);

/* CRC-32C (Castagnoli) of `count` bytes, continued from `crc` (0 to start). */
uint32_t file_crc32c(uint32_t crc, const void *bytes, size_t count);
/* The same where the processor has no instruction for it. */
uint32_t file_crc32c_portable(uint32_t crc, const void *bytes, size_t count);
/* CRC-32 (IEEE 802.3), which zip archives have, in the same way. */
uint32_t file_crc32(uint32_t crc, const void *bytes, size_t count);

#endif
