/* The user's cache: files that can be made again, one per name, kept from run to run.
 *
 * Files are untrusted: owner, mode, length, checksum and the full key are checked.  No failure here
 * is an error: a file that is missing or not trusted is made again.
 */
#ifndef GPT_TRAIN_BASE_USER_CACHE_H
#define GPT_TRAIN_BASE_USER_CACHE_H

#include "base/file.h"

#define USER_CACHE_KEY_MAX 1024

/* A kind of cached file. */
struct user_cache {
    const char *folder;    /* below $XDG_CACHE_HOME/gpt-train or ~/.cache/gpt-train */
    const char *magic;     /* eight characters that identify the format */
    const char *suffix;    /* ".clbin" */
    const char *otherwise; /* the consequence of a miss, for log lines: "the kernels in it are
                              compiled again" */
    uint64_t bytes_max;    /* of the whole folder */
    uint64_t file_bytes_max;
};

/* Writes the cache's folder to `folder` of FILE_PATH_MAX bytes, and creates it with mode 0700 if
 * `create`.  Returns false when there is no home, the folder is not usable, or others own it or may
 * write to it. */
bool user_cache_folder(const struct user_cache *cache, char *folder, bool create);
/* The result of reading a file. */
enum user_cache_file {
    USER_CACHE_ABSENT,
    USER_CACHE_UNREAD,  /* could not be read; it may be valid, and is left alone */
    USER_CACHE_REFUSED, /* not exclusively the user's, too long, damaged or for another key: may be
                           replaced */
    USER_CACHE_READ
};
/* Loads the data stored under `name` into malloc'ed memory and returns USER_CACHE_READ.  Returns
 * USER_CACHE_REFUSED also when the file is damaged or was made for another key.  Logs a note about
 * a file that it cannot use; about another key only if `key` and `name` differ, since then the same
 * item has changed. */
enum user_cache_file user_cache_load(const struct user_cache *cache, const char *name,
                                     const char *key, void **out, size_t *out_bytes);
/* Stores `bytes` bytes; first removes the oldest files if the folder would grow too large.  Returns
 * false on failure. */
bool user_cache_store(const struct user_cache *cache, const char *name, const char *key,
                      const void *data, size_t bytes);

#endif
