/* Explains unusual results of an update.
 *
 * If the loss or the gradient of an update is not finite, the update is repeated op by op to name the first value that
 * is not finite.  A skipped update has left the weights unchanged.  A sudden rise of the loss is traced to its samples
 * (spikes.h).
 */
#ifndef GPT_TRAIN_TRAIN_DIAGNOSE_H
#define GPT_TRAIN_TRAIN_DIAGNOSE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/progress.h"
#include "base/status.h"
#include "train/feed.h"
#include "train/spikes.h"

/* All pointers are borrowed and must outlive the struct. */
struct diagnosis {
    struct session *session;
    struct feed *feed;
    const struct steps_ahead *ahead;
    struct progress *progress;
    const struct tokenizer *tokenizer; /* may be NULL */
    struct spikes spikes;
    bool was_bad; /* the previous update was bad; only the first update of a burst is diagnosed */
    int32_t done;
};

/* Diagnoses update `index` of the `count` updates in `ahead`, all of which the device has finished.  `loss` is the mean
 * loss of the update.  If it is not finite, or the update was skipped and not because of float16's loss scale, repeats
 * the update and logs one line, at most a few times in a run. replay_run() lists the state that stays unchanged.
 * Errors: those of replay_run(). */
enum gt_status diagnose_step(struct diagnosis *diagnosis, int32_t index, int32_t count, double loss);

#endif
