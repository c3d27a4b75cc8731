/* Programs and kernels: one source with one set of options is one program, built when its first
 * kernel is requested. */
#ifndef GPT_TRAIN_OPENCL_OPENCL_PROGRAM_H
#define GPT_TRAIN_OPENCL_OPENCL_PROGRAM_H

#include "backends/opencl/opencl.h"

/* The user's cache of program binaries, and of what measurements found.  Drivers abort on damaged
 * binaries, so a binary reaches the driver only if length, checksum and key match.  No failure here
 * is an error: without a cache, programs are compiled again. */
#define OPENCL_KEY_MAX USER_CACHE_KEY_MAX
/* Returns the bytes stored under `key`, malloc'ed.  Returns false when there are none that can be
 * trusted. */
bool opencl_cache_load(const char *key, void **out, size_t *out_bytes);
void opencl_cache_store(const char *key, const void *data, size_t bytes);

/* Returns the kernel `name` of a source built with `options`, ready for its arguments.  The cache
 * keeps the pointers `source` and `name`, so `name` must be a literal.  Errors: GT_DEVICE with the
 * compiler's first error; GT_NO_MEMORY. */
enum gt_status opencl_kernel_find(struct opencl_backend *cl, const struct opencl_source *source,
                                  const char *options, const char *name, cl_kernel *out);
void opencl_programs_release(struct opencl_backend *cl);

#endif
