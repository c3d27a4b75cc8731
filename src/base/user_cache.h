/* The user's cache: what was made once and may be made again, one file for each name, kept from run to run.
 *
 * Files are checked like foreign ones: owner, mode, length, checksum, and the key in full.  Nothing here is an error: what
 * is not there, or not to be trusted, is made again.
 */
#ifndef GPT_TRAIN_BASE_USER_CACHE_H
#define GPT_TRAIN_BASE_USER_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define USER_CACHE_KEY_MAX 1024

extern const mode_t user_cache_file_mode; /* whatever the umask: a file that its group may write to is not trusted */

/* One kind of files. */
struct user_cache {
    const char *folder;    /* below $XDG_CACHE_HOME/gpt-train or ~/.cache/gpt-train */
    const char *magic;     /* eight characters: the format */
    const char *suffix;    /* ".clbin" */
    const char *otherwise; /* what happens without: "the kernels in it are compiled again" */
    uint64_t bytes_max;    /* of the whole folder */
    uint64_t file_bytes_max;
};

/* $XDG_CACHE_HOME, which must be absolute, else ~/.cache, into `above`, and gpt-train's folder in it into `root`, both of
 * FILE_PATH_MAX bytes.  False without a home.  Nothing is made. */
bool user_cache_root(char *above, char *root);
/* The folder into `folder` of FILE_PATH_MAX bytes, made with mode 0700 when `create`.  False without a home, or where others
 * may write. */
bool user_cache_folder(const struct user_cache *cache, char *folder, bool create);
/* What became of a file that was to be read. */
enum user_cache_file {
    USER_CACHE_ABSENT,
    USER_CACHE_UNREAD,  /* it may be as good as ever, and is left alone */
    USER_CACHE_REFUSED, /* not the user's alone, or too long: may be replaced */
    USER_CACHE_READ
};
/* A file of at most `bytes_max` bytes whole, malloc'ed with room for one more.  *why says what is wrong where it is there and
 * was not read.  Nothing is logged. */
enum user_cache_file user_cache_read(const char *path, uint64_t bytes_max, void **out, size_t *out_bytes,
                                     const char **why);
/* What is stored under `name`, malloc'ed: USER_CACHE_READ.  USER_CACHE_REFUSED where it is damaged too, or was made for another
 * key; that is said where `key` and `name` differ: the same thing has changed then. */
enum user_cache_file user_cache_load(const struct user_cache *cache, const char *name, const char *key, void **out,
                                     size_t *out_bytes);
/* Keeps `bytes` bytes, and removes the oldest files where the folder grows too large.  False, without a word, where it
 * cannot. */
bool user_cache_store(const struct user_cache *cache, const char *name, const char *key, const void *data,
                      size_t bytes);

#endif
