/* Opens a device in this process, without trying it in a child process first. */
#ifndef GPT_TRAIN_OPENCL_OPENCL_BACKEND_H
#define GPT_TRAIN_OPENCL_OPENCL_BACKEND_H

#include "backends/opencl/opencl.h"

/* Opens device number `index`, or, if `name` is not NULL, the first usable device whose name contains it, and runs the
 * known-answer kernel on it.  Errors: GT_DEVICE, GT_NO_MEMORY, logged. */
enum gt_status opencl_open_here(int32_t index, const char *name, struct backend **out);

#endif
