/* Opens a device in this process, and releases it. */
#ifndef GPT_TRAIN_OPENCL_OPENCL_OPEN_H
#define GPT_TRAIN_OPENCL_OPENCL_OPEN_H

#include "backends/opencl/opencl.h"

/* Opens device number `index`, or, if `name` is not NULL, the first usable device whose name
 * contains it.  Errors: GT_DEVICE, GT_NO_MEMORY, logged. */
enum gt_status opencl_open_here(int32_t index, const char *name, struct backend **out);
/* Waits for the queue, and frees all that the backend has, and `cl`, which may be half open. */
void opencl_release(struct opencl_backend *cl);
/* Forgets the copies that are marked as in flight. */
void opencl_copies_release(struct opencl_backend *cl);

#endif
