/* Which value of an update was the first that is not finite.
 *
 * An update is a function of weights, seed and iteration, and one that is skipped leaves the weights as they were.  So it can
 * be repeated, op by op, with a look at what each op writes.
 */
#ifndef GPT_TRAIN_TRAIN_DIAGNOSE_H
#define GPT_TRAIN_TRAIN_DIAGNOSE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/progress.h"
#include "base/status.h"
#include "train/feed.h"
#include "train/session.h"
#include "train/steps_ahead.h"

/* All pointers are borrowed and outlive it. */
struct diagnosis {
    struct session *session;
    struct feed *feed;
    const struct steps_ahead *ahead;
    struct progress *progress;
    bool was_bad; /* the update before: a burst is looked at once */
    int32_t done;
};

/* Of update `index` of the `count` in `ahead`, all of which the device has finished.  Where its loss is not finite, or it was
 * skipped and not to find float16's loss scale, repeats it and logs one line; at most a few times in a run.  Changes neither
 * weights nor the host's scalars and allocates nothing.  Errors are the device's. */
enum gt_status diagnose_step(struct diagnosis *diagnosis, int32_t index, int32_t count);

#endif
