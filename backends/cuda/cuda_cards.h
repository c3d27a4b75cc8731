/* Finds the cards, and checks that this build can use them. */
#ifndef GPT_TRAIN_CUDA_CUDA_CARDS_H
#define GPT_TRAIN_CUDA_CUDA_CARDS_H

#include "backends/cuda/cuda.h"

/* backend_ops.devices.  It opens no context. */
void cuda_devices(bool automatic, struct backend_devices *out);
/* Checks that a device can be used, and fills in its name, capability and limits.  The device is
 * cuda->device, or the first one with `name` in its name when that is not NULL. Errors: GT_DEVICE,
 * in one line: no driver, an old one, no device, no such index, a card that is too old; GT_USAGE
 * for a name that no card has. */
enum gt_status cuda_device_describe(struct cuda_backend *cuda, const char *name);

#endif
