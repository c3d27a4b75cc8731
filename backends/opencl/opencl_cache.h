/* The cache of program binaries in the user's cache folder.
 *
 * Drivers abort on damaged binaries, so a binary reaches the driver only if its length, checksum and key match.
 * Nothing here is an error: without a cache, programs are compiled again.
 */
#ifndef GPT_TRAIN_OPENCL_OPENCL_CACHE_H
#define GPT_TRAIN_OPENCL_OPENCL_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define OPENCL_KEY_MAX 1024
#define OPENCL_CACHE_BYTES_MAX ((uint64_t)256 << 20)     /* of the whole folder */
#define OPENCL_CACHE_FILE_BYTES_MAX ((uint64_t)64 << 20) /* of one file */

/* Writes $XDG_CACHE_HOME/gpt-train/opencl or ~/.cache/gpt-train/opencl to `folder`, of FILE_PATH_MAX bytes; `create`
 * makes the folder with mode 0700.  Returns false without a home directory, or when others may write to the folder. */
bool opencl_cache_folder(char *folder, bool create);
/* Returns the bytes stored under `key`, malloc'ed.  Returns false when there are none that can be trusted. */
bool opencl_cache_load(const char *key, void **out, size_t *out_bytes);
/* Stores `bytes` bytes under `key`, and removes the oldest files when the folder grows too large. */
void opencl_cache_store(const char *key, const void *data, size_t bytes);

#endif
