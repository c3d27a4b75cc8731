/* The device of a session: a backend or a profile, the dtype of weights, and the memory budget. */
#ifndef GPT_TRAIN_TRAIN_SESSION_DEVICE_H
#define GPT_TRAIN_TRAIN_SESSION_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

#include "backend/backend.h"
#include "base/status.h"
#include "config/config.h"
#include "plan/device_profile.h"

struct session_device {
    struct backend *backend; /* the counting wrapper around the backend */
    struct backend_info info;
    enum dtype dtype; /* of weights and activations: the configuration's, or the nearest that the device has */
    bool has_profile; /* the device is only planned for */
    struct device_profile profile; /* then: its figures */
    uint64_t budget_bytes;         /* for the process: memory_budget, or what was free at the start less a margin */
};

/* Opens the device that the configuration names, sets the budget and the dtype.  `out` is zeroed; on failure its backend,
 * if not NULL, is the caller's to close.  Errors: GT_USAGE, GT_UNSUPPORTED, GT_DEVICE, GT_NO_MEMORY. */
enum gt_status session_device_open(const struct config *config, struct session_device *out);
/* Returns true when ops of the device may store the dtype. */
bool session_device_has(const struct session_device *device, enum dtype dtype);
/* The budget where `free_bytes` are free and the user sets none: a margin is left to other programs. */
uint64_t session_device_budget(uint64_t free_bytes);

#endif
