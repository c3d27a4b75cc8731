/* The device of a session: a backend or a profile, the dtype of weights, and the memory budget. */
#ifndef GPT_TRAIN_TRAIN_SESSION_DEVICE_H
#define GPT_TRAIN_TRAIN_SESSION_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

#include "backend/backend_call.h"
#include "base/status.h"
#include "config/config.h"
#include "plan/device_profile.h"

struct session_device {
    struct backend *backend;
    struct backend_record record; /* of its calls */
    struct backend_info info;
    enum dtype dtype; /* of weights and activations: as configured, or the nearest that the device supports */
    bool has_profile; /* there is only a profile: the device can be planned for, not used */
    struct device_profile profile; /* valid with has_profile */
    uint64_t budget_bytes;         /* for the process: memory_budget, or the free memory at the start less a margin */
};

/* Opens the device that the configuration names, and sets the budget and the dtype.  `out` must be zeroed, and must not
 * move.  On failure the caller must close its backend if that is not NULL.
 * Errors: GT_USAGE, GT_UNSUPPORTED, GT_DEVICE, GT_NO_MEMORY. */
enum gt_status session_device_open(const struct config *config, struct session_device *out);
/* Returns true when ops of the device can store the dtype. */
bool session_device_has(const struct session_device *device, enum dtype dtype);
/* Returns the default budget if `free_bytes` are free: it leaves a margin to other programs. */
uint64_t session_device_budget(uint64_t free_bytes);

#endif
