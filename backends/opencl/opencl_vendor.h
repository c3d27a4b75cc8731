/* What vendors tell beside OpenCL: free memory, and who holds the rest. */
#ifndef GPT_TRAIN_OPENCL_OPENCL_VENDOR_H
#define GPT_TRAIN_OPENCL_OPENCL_VENDOR_H

#include "backends/opencl/opencl.h"

/* Free memory of a card, and who said so; false when nobody does. */
bool opencl_vendor_free_bytes(const struct opencl_backend *cl, uint64_t *out_bytes, const char **out_basis);
/* The other processes with most of the card's memory, from the DRM's fdinfo below `proc` ("/proc"), into `out`;
 * none where the kernel has no such files. */
void opencl_vendor_holders(const struct opencl_backend *cl, const char *proc, int64_t own_pid,
                           struct backend_holders *out);

#endif
