/* The cache of built programs: the settings in which it differs from other files of the user's cache.
 *
 * base/user_cache.c reads, checks and bounds it.  A program's name is its whole key.
 */
#include "backends/opencl/opencl_cache.h"

#include "base/user_cache.h"

static const struct user_cache programs = {
    .folder = "opencl",
    .magic = "GTCLBIN1",
    .suffix = ".clbin",
    .otherwise = "the kernels in it are compiled again",
    .bytes_max = OPENCL_CACHE_BYTES_MAX,
    .file_bytes_max = OPENCL_CACHE_FILE_BYTES_MAX,
};
_Static_assert(OPENCL_KEY_MAX <= USER_CACHE_KEY_MAX, "keys are cut by nobody");

bool opencl_cache_folder(char *folder, bool create)
{
    return user_cache_folder(&programs, folder, create);
}

bool opencl_cache_load(const char *key, void **out, size_t *out_bytes)
{
    return user_cache_load(&programs, key, key, out, out_bytes) == USER_CACHE_READ;
}

void opencl_cache_store(const char *key, const void *data, size_t bytes)
{
    (void)user_cache_store(&programs, key, key, data, bytes);
}
