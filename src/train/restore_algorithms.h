/* The algorithms that a backend chose for its calls, in a checkpoint's plan: {"CALL": "ALGORITHM", ...}, 16 digits each. */
#ifndef GPT_TRAIN_TRAIN_RESTORE_ALGORITHMS_H
#define GPT_TRAIN_TRAIN_RESTORE_ALGORITHMS_H

#include <stdbool.h>

#include "backend/backend.h"
#include "base/json.h"
#include "base/status.h"

/* What the device has chosen; NULL where it never chooses.  False without memory. */
bool restore_algorithms_object(struct backend *device, json_t **out);
/* Tells the device what `plan`, of a checkpoint, says; `source` names the file in errors.  Before the arena is taken.
 * Errors: GT_DATA. */
enum gt_status restore_algorithms_choose(struct backend *device, const json_t *plan, const char *source);
/* A call that both know has another algorithm in each. */
bool restore_algorithms_differ(const json_t *before, const json_t *now);

#endif
