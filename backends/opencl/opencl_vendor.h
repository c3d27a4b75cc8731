/* Data that vendors provide outside OpenCL. */
#ifndef GPT_TRAIN_OPENCL_OPENCL_VENDOR_H
#define GPT_TRAIN_OPENCL_OPENCL_VENDOR_H

#include "backends/opencl/opencl.h"

/* Returns a card's free memory and the source of that number; false when no source has it. */
bool opencl_vendor_free_bytes(const struct opencl_backend *cl, uint64_t *out_bytes,
                              const char **out_basis);
/* Writes to `out` the other processes that use most of the card's memory, from the DRM's fdinfo
 * below `proc` ("/proc"); none when the kernel has no such files. */
void opencl_vendor_holders(const struct opencl_backend *cl, const char *proc, int64_t own_pid,
                           struct backend_holders *out);

#endif
