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
    backend_close(session->device.backend);
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

enum gt_status session_scalars_set(struct session *session)
{
    return exec_upload(session->exec, session->model->scalars, 0, session->scalars, SCALAR_HOST_COUNT);
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
