/* A session: turns a configuration into a bound plan on a device.
 *
 * The order is device, plan, and only then memory.  Initial weights are in session_weights.c.
 */
#include "train/session.h"

#include <math.h>

enum gt_status session_open(struct hostmem *mem, const struct config *config, struct session *out)
{
    *out = (struct session){.mem = mem, .config = config};
    enum gt_status status = session_device_open(config, &out->device);
    if (status != GT_OK)
        session_close(out);
    return status;
}

void session_close(struct session *session)
{
    exec_destroy(session->exec);
    plan_destroy(session->plan);
    if (session->device.backend)
        session->device.backend->ops->close(session->device.backend);
    model_destroy(session->model);
    hostmem_free(session->mem, session->staging);
    session->exec = NULL;
    session->plan = NULL;
    session->device.backend = NULL;
    session->model = NULL;
    session->staging = NULL;
}

enum gt_status session_scalars_upload(struct session *session)
{
    return exec_upload(session->exec, session->model->scalars, 0, session->scalars, SCALAR_WORDS);
}

enum gt_status session_scalars_download(struct session *session)
{
    return exec_download(session->exec, session->model->scalars, 0, session->scalars, SCALAR_WORDS);
}

_Static_assert(SCALAR_UNSCALE - SCALAR_LEARNING_RATE == 2 && SCALAR_COUNT - SCALAR_STEP == 6,
               "between them are the words that clip_factor writes, and the sum of losses");

enum gt_status session_scalars_set(struct session *session)
{
    static const struct {
        int32_t first, count;
    } parts[] = {{SCALAR_LEARNING_RATE, 3}, {SCALAR_LOSS_SUM, 1}, {SCALAR_STEP, SCALAR_COUNT - SCALAR_STEP}};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        TRY(exec_upload(session->exec, session->model->scalars, parts[i].first, &session->scalars[parts[i].first],
                        parts[i].count));
    return GT_OK;
}

enum gt_status session_corrections_upload(struct session *session)
{
    const struct model_options *options = &session->model->options;
    for (int32_t row = 0; row < options->correction_rows; row++) {
        float pair[2] = {(float)(1.0 - pow((double)options->beta1, row + 1)),
                         (float)(1.0 - pow((double)options->beta2, row + 1))};
        TRY(exec_upload(session->exec, session->model->corrections, 2 * (int64_t)row, pair, 2));
    }
    return GT_OK;
}
