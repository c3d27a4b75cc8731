/* Replays an update with a callback after each op.
 *
 * An update is a function of weights, seed and iteration, so its micro-steps can be run again at any time after it.
 * They see the original weights if the update was skipped, and the current ones otherwise.
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
    const struct step_result *result; /* of the update; no later one is in flight */
    exec_look_fn *look;
    void *context;
    int32_t micro_step; /* the one that is running, or ran last */
    bool enough;        /* set by `look` to skip the remaining micro-steps */
};

/* Runs the micro-steps but not the update program; a signal ends the replay early.  `context` may point to a struct
 * that contains the replay.  Weights, moments and the host's scalars stay unchanged; gradients do not.  Nothing is
 * allocated.  Errors: the device's, those of `look`. */
enum gt_status replay_run(struct replay *replay);

#endif
