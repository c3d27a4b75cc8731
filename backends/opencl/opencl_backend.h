/* Opening a device in this process, without trying it in another one first. */
#ifndef GPT_TRAIN_OPENCL_OPENCL_BACKEND_H
#define GPT_TRAIN_OPENCL_OPENCL_BACKEND_H

#include "backends/opencl/opencl.h"

/* Device number `index`, or the first one with `name` in its name where that is not NULL; its known-answer kernel has run.
 * Errors: GT_DEVICE, GT_NO_MEMORY, logged. */
enum gt_status opencl_open_here(int32_t index, const char *name, struct backend **out);

#endif
