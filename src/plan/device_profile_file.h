/* Users' device profiles. */
#ifndef GPT_TRAIN_PLAN_DEVICE_PROFILE_FILE_H
#define GPT_TRAIN_PLAN_DEVICE_PROFILE_FILE_H

#include "plan/device_profile.h"

/* As device_profile_named(), but reads a file if `text` contains a slash or ends in .json.  Errors:
 * GT_USAGE for an unknown name and an unreadable file, GT_DATA for a file with a missing, unknown
 * or impossible field, which is named. */
enum gt_status device_profile_find(const char *text, struct device_profile *out);

#endif
