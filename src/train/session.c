/* A session: turns a configuration into a bound plan on a device.
 *
 * The order is device, plan, and only then memory.  Other programs may have taken memory since the plan was made; a
 * training session is then planned again for what is left.
 */
#include "train/session.h"

#include <config.h>

#include "base/log.h"

/* A build with --enable-debug poisons dead bytes. */
#ifdef GT_DEBUG
#define DEBUG_RUN true
#else
#define DEBUG_RUN false
#endif

/* Releases the plan and what belongs to it. */
static void plan_release(struct session *session)
{
    plan_destroy(session->plan);
    model_destroy(session->model);
    hostmem_free(session->mem, session->staging);
    session->plan = NULL;
    session->model = NULL;
    session->staging = NULL;
}

enum gt_status session_open(struct hostmem *mem, const struct config *config, const struct session_assumption *assumed,
                            struct session *out)
{
    const struct session_assumption nothing = {.budget_bytes = 0};
    *out = (struct session){.mem = mem, .config = config};
    enum gt_status status = session_device_open(config, assumed ? assumed : &nothing, &out->device);
    if (status != GT_OK)
        session_close(out);
    return status;
}

void session_close(struct session *session)
{
    exec_destroy(session->exec);
    backend_close(session->device.backend);
    session->exec = NULL;
    session->device.backend = NULL;
    plan_release(session);
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

/* Returns how many bytes the device's free memory is short of the plan, whatever the budget says. */
static uint64_t bytes_lacking(const struct session *session)
{
    uint64_t need = session->plan->arena_bytes + session->device.info.context_bytes + session_headroom_bytes(session);
    uint64_t free_bytes = session->device.info.free_bytes;
    return free_bytes > 0 && need > free_bytes ? need - free_bytes : 0;
}

/* Makes another plan for the memory that other programs have left. */
static enum gt_status plan_again(struct session *session)
{
    char lacking[24], have[24], holders[BACKEND_HOLDERS_TEXT_MAX];
    const struct model_options options = session->search.request.options;
    log_note("%s are free on %s now, %s less than the plan needs (other processes: %s); planning again",
             log_bytes(have, (double)session->device.info.free_bytes), session->device.info.device,
             log_bytes(lacking, (double)bytes_lacking(session)),
             backend_holders_known(holders, session->device.backend));
    session->device.budget_bytes = session_device_budget(session->device.info.free_bytes);
    plan_release(session);
    TRY(session_plan(session, &options));
    return session_fits(session);
}

enum gt_status session_start(struct session *session)
{
    struct exec_options options = {.poison = DEBUG_RUN};
    TRY(session_fits(session));
    TRY(backend_info(session->device.backend, &session->device.info));
    if (bytes_lacking(session) > 0 && session->model->options.train)
        TRY(plan_again(session));
    if (bytes_lacking(session) > 0) {
        char needed[24], have[24], holders[BACKEND_HOLDERS_TEXT_MAX];
        uint64_t free_bytes = session->device.info.free_bytes;
        log_error("not enough memory: this run needs %s, and %s are free on %s now (other processes: %s)",
                  log_bytes(needed, (double)(free_bytes + bytes_lacking(session))), log_bytes(have, (double)free_bytes),
                  session->device.info.device, backend_holders_known(holders, session->device.backend));
        return GT_NO_FIT;
    }
    return exec_create(session->mem, session->device.backend, session->plan, &options, &session->exec);
}
