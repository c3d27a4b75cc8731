/* An update once more, with a look at each op.
 *
 * An update is a function of weights, seed and iteration.  So its micro-steps can be run again at any time after it: with the
 * weights that it had where it was skipped, else with those of now.
 */
#ifndef GPT_TRAIN_TRAIN_REPLAY_H
#define GPT_TRAIN_TRAIN_REPLAY_H

#include <stdbool.h>

#include "base/status.h"
#include "train/feed.h"
#include "train/session.h"
#include "train/steps_ahead.h"

/* All pointers are borrowed. */
struct replay {
    struct session *session;
    struct feed *feed;
    const struct step_result *result; /* of the update; nothing of a later one is under way */
    exec_look_fn *look;
    void *context;
    int32_t micro_step; /* the one that runs, or ran last */
    bool enough;        /* set by `look`: no more micro-steps */
};

/* Runs the micro-steps, not the update itself; a signal ends it too.  `context` may hold the replay.  Weights, moments and the
 * host's scalars stay as they are, gradients do not; nothing is allocated.  Errors: the device's, those of `look`. */
enum gt_status replay_run(struct replay *replay);

#endif
