/* A device that is only planned for: a backend whose memory and dtypes are a profile's, and which runs nothing.
 *
 * It grants each op the workspace that the real backend may take at most (workspace_cap of its declaration is the contract), so that a
 * profile's plan and the device's agree byte for byte at equal alignment and segments.
 */
#ifndef GPT_TRAIN_PLAN_PROFILE_DEVICE_H
#define GPT_TRAIN_PLAN_PROFILE_DEVICE_H

#include "backend/backend.h"
#include "plan/device_profile.h"

/* Errors: GT_NO_MEMORY. */
enum gt_status profile_device_open(const struct device_profile *profile, struct backend **out);
/* The cap of one op. */
size_t profile_workspace_bytes(const struct backend *backend, const struct op_call *call);

#endif
