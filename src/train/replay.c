/* Runs the micro-steps of an update again.
 *
 * The scalars that came back with the update's results are the ones that it ran with, so they are sent to the device
 * again.  The next update sets the scalars that it needs itself.
 */
#include "train/replay.h"

#include <string.h>

#include "train/stop.h"

static enum gt_status micro_steps_run(struct replay *replay)
{
    const int32_t count = replay->session->model->options.micro_steps;
    for (int32_t k = 0; k < count && !replay->enough && !stop_requested(); k++) {
        replay->micro_step = k;
        TRY(feed_micro_step(replay->feed, replay->session, replay->result->iter, k));
    }
    return GT_OK;
}

enum gt_status replay_run(struct replay *replay)
{
    struct session *session = replay->session;
    union scalar_word scalars[SCALAR_WORDS];
    memcpy(scalars, session->scalars, sizeof scalars);
    memcpy(session->scalars, replay->result->scalars, sizeof scalars);
    exec_look_set(session->exec, replay->look, replay->context);
    const enum gt_status status = micro_steps_run(replay);
    exec_look_set(session->exec, NULL, NULL);
    memcpy(session->scalars, scalars, sizeof scalars);
    TRY(status);
    return session_scalars_set(session);
}
