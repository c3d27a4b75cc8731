/* Rates of an open device, from timing the ops of a small model of the run's width on it; and their cache.
 *
 * They are for forecasts only.  What a plan chooses never depends on a timing: it would differ from start to start, and
 * with it the last bits.
 */
#ifndef GPT_TRAIN_PLAN_CALIBRATE_H
#define GPT_TRAIN_PLAN_CALIBRATE_H

#include <stdbool.h>

#include "backend/backend.h"
#include "base/hostmem.h"
#include "base/status.h"
#include "model/model.h"
#include "plan/plan.h"
#include "plan/plan_cost.h"

#define CALIBRATE_KEY_MAX 640

struct calibrate_request {
    struct backend *device;              /* with its arena, whose content is lost */
    const struct plan *plan;             /* of the run: how the arena is cut, aligned and guarded */
    const struct model_options *options; /* the run's model */
    double seconds;                      /* to spend at most, but for one pass that has begun */
};

/* Runs training programs of one block, of the run's width, over few and over more rows, and times every op.  Ops that such
 * a program lacks get the rates of their nearest kin.  Nothing that the model computes is looked at.
 * Errors: GT_NO_FIT (not logged) when not even the smallest such model fits the arena; GT_NO_MEMORY, and the device's. */
enum gt_status calibrate_measure(struct hostmem *mem, const struct calibrate_request *request, struct plan_rates *out);

/* What rates depend on, as a line: device and driver, and after a bar the build and the model's width and dtype. */
char *calibrate_key(char key[static CALIBRATE_KEY_MAX], const struct backend_info *info,
                    const struct model_options *options);

/* The rates that were stored under this key, in gpt-train below XDG_CACHE_HOME or else ~/.cache.  False when there are
 * none; a file or folder that cannot be trusted is ignored, and said; a damaged file is removed. */
bool calibrate_load(const char *key, struct plan_rates *out);
/* Stores them, atomically, in a folder that only this user may enter: a file per device, which holds the last eight keys.
 * That it failed is said, and harmless. */
void calibrate_store(const char *key, const struct plan_rates *rates);

#endif
