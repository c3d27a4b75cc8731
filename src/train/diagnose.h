/* Why the results of an update are not as usual.
 *
 * An update whose loss or gradient is not finite is repeated op by op, to name the first value that is not; one that is skipped
 * has left the weights as they were.  A sudden rise of the loss is followed to its samples (spikes.h).
 */
#ifndef GPT_TRAIN_TRAIN_DIAGNOSE_H
#define GPT_TRAIN_TRAIN_DIAGNOSE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/progress.h"
#include "base/status.h"
#include "train/feed.h"
#include "train/spikes.h"

/* All pointers are borrowed and outlive it. */
struct diagnosis {
    struct session *session;
    struct feed *feed;
    const struct steps_ahead *ahead;
    struct progress *progress;
    const struct tokenizer *tokenizer; /* may be NULL */
    struct spikes spikes;
    bool was_bad; /* the update before: a burst is looked at once */
    int32_t done;
};

/* Of update `index` of the `count` in `ahead`, all of which the device has finished; `loss` is its mean.  Where that is not
 * finite, or the update was skipped and not to find float16's loss scale, repeats it and logs one line, at most a few times in
 * a run.  See replay_run() for what stays.  Errors: those of it. */
enum gt_status diagnose_step(struct diagnosis *diagnosis, int32_t index, int32_t count, double loss);

#endif
