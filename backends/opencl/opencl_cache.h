/* The cache of built programs: what a driver made of a source, kept in the user's cache folder.
 *
 * Drivers abort on damaged binaries, so that nothing is handed to one whose length, checksum and key are not right.
 * Nothing here is an error: without a cache programs are compiled again.
 */
#ifndef GPT_TRAIN_OPENCL_OPENCL_CACHE_H
#define GPT_TRAIN_OPENCL_OPENCL_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define OPENCL_KEY_MAX 1024
#define OPENCL_CACHE_BYTES_MAX ((uint64_t)256 << 20)     /* of the whole folder */
#define OPENCL_CACHE_FILE_BYTES_MAX ((uint64_t)64 << 20) /* of one file */

/* $XDG_CACHE_HOME/gpt-train/opencl or ~/.cache/gpt-train/opencl into `folder` of FILE_PATH_MAX bytes, made with mode 0700
 * when `create`.  False without a home, or where others may write. */
bool opencl_cache_folder(char *folder, bool create);
/* The stored bytes under `key`, malloc'ed; false when there are none that can be trusted. */
bool opencl_cache_load(const char *key, void **out, size_t *out_bytes);
/* Keeps `bytes` bytes under `key`, and removes the oldest files where the folder grows too large. */
void opencl_cache_store(const char *key, const void *data, size_t bytes);

#endif
