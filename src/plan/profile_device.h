/* A backend for planning only: its memory and dtypes are a profile's.
 *
 * It has name, info(), supports(), workspace_bytes() and close(), which is all that a plan needs; its other functions
 * are NULL.  Each op gets the most workspace that a real backend may request (workspace_cap of its declaration), so
 * that a profile's plan and the device's agree byte for byte at equal alignment and segments.
 */
#ifndef GPT_TRAIN_PLAN_PROFILE_DEVICE_H
#define GPT_TRAIN_PLAN_PROFILE_DEVICE_H

#include "backend/backend.h"
#include "plan/device_profile.h"

/* Errors: GT_NO_MEMORY. */
enum gt_status profile_device_open(const struct device_profile *profile, struct backend **out);

#endif
