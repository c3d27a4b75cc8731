/* Measures the rates of an open device by timing the ops of a small model of the run's width, and
 * caches them.
 *
 * The rates are used only for forecasts.  No choice of a plan depends on a timing: it could change
 * from one start to the next, and with it the last bits of the results.
 */
#ifndef GPT_TRAIN_PLAN_CALIBRATE_H
#define GPT_TRAIN_PLAN_CALIBRATE_H

#include "backend/backend.h"
#include "base/hostmem.h"
#include "model/model.h"
#include "plan/plan.h"
#include "plan/plan_cost.h"

#define CALIBRATE_KEY_MAX 640

struct calibrate_request {
    struct backend *device;  /* has an arena, whose content is lost */
    const struct plan *plan; /* the run's plan: the layout, alignment and guards of the arena */
    const struct model_options *options; /* the run's model */
    double seconds;                      /* for two attempts; a pass that has begun may exceed it */
};

/* Times every op of training programs of one block, of the run's width, over few rows and over
 * more.  Ops that such a program lacks get the rates of similar ones.  The computed values are not
 * read.  Repeats the timing, at most four times in all, until one agrees with the fastest within a
 * tenth; *is_steady says whether one did.  Returns the rates of the fastest timing.  If no two
 * timings agreed, or other programs slowed the passes, their uncertainty is the ratio of the
 * slowest pass to the fastest.  Errors: GT_NO_FIT (not logged) when not even the smallest such
 * model fits the arena; GT_NO_MEMORY, and the device's. */
enum gt_status calibrate_measure(struct hostmem *mem, const struct calibrate_request *request,
                                 struct plan_rates *out, bool *is_steady);

/* Writes everything that rates depend on as one line: device and driver, then after a bar the build
 * and the model's width and dtype. */
char *calibrate_key(char key[static CALIBRATE_KEY_MAX], const struct backend_info *info,
                    const struct model_options *options);

/* Loads the rates stored under this key in the user's cache.  Returns false when there are none.  A
 * file that is damaged or not trusted is ignored with a note. */
bool calibrate_load(const char *key, struct plan_rates *out);
/* Corrects rates by the ratio of modelled to measured seconds. */
void calibrate_scale(struct plan_rates *rates, double ratio);
/* Stores the rates in the user's cache.  A failure is harmless and logged as a note. */
void calibrate_store(const char *key, const struct plan_rates *rates);

#endif
