/* Which cards there are, and whether this build can use them. */
#ifndef GPT_TRAIN_CUDA_CUDA_DEVICES_H
#define GPT_TRAIN_CUDA_CUDA_DEVICES_H

#include "backends/cuda/cuda_backend.h"

/* backend_ops.devices: opens no context. */
void cuda_devices(bool automatic, struct backend_devices *out);
/* Fills name, capability and limits of cuda->device, or of the first device with `name` in its name unless that is NULL,
 * after checking that it can be used.
 * Errors: GT_DEVICE, in one line: no driver, an old one, no device, no such index, a card that is too old; GT_USAGE for a
 * name that no card has. */
enum gt_status cuda_device_describe(struct cuda_backend *cuda, const char *name);

#endif
