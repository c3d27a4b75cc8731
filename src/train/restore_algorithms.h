/* The algorithms that a backend chose for its calls, as stored in a checkpoint's plan: {"CALL": "ALGORITHM", ...}, 16
 * digits each. */
#ifndef GPT_TRAIN_TRAIN_RESTORE_ALGORITHMS_H
#define GPT_TRAIN_TRAIN_RESTORE_ALGORITHMS_H

#include <stdbool.h>

#include "backend/backend.h"
#include "base/json.h"
#include "base/status.h"

/* Creates the object for the device's choices, or NULL for a device that makes none.  Returns false without memory. */
bool restore_algorithms_object(struct backend *device, json_t **out);
/* Passes the choices in a checkpoint's `plan` to the device.  `source` names the file in errors.  To be called before
 * the arena is taken.  Errors: GT_DATA. */
enum gt_status restore_algorithms_choose(struct backend *device, const json_t *plan, const char *source);
/* Returns true when a call that occurs in both has different algorithms. */
bool restore_algorithms_differ(const json_t *before, const json_t *now);

#endif
