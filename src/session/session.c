/* Releases the parts of a session, and copies its scalars.
 *
 * The parts are made in the order device, plan, and only then memory, by the files named after
 * these steps.
 */
#include "session/session.h"

#include "backend/backend_call.h"
#include "backend/backend_holders.h"
#include "backend/backend_registry.h"
#include "base/clock.h"
#include "base/size.h"
#include "base/system_memory.h"
#include "config/config_check.h"
#include "model/model_create.h"
#include "plan/device_profile_file.h"
#include "plan/plan_alternatives.h"
#include "plan/plan_search.h"

void session_plan_release(struct session *session)
{
    hostmem_free(session->plan);
    hostmem_free(session->model);
    hostmem_free(session->staging);
    session->plan = NULL;
    session->model = NULL;
    session->staging = NULL;
}

void session_close(struct session *session)
{
    hostmem_free(session->exec);
    search_memo_close(&session->search.memo);
    backend_close(session->device.backend);
    session->exec = NULL;
    session->device.backend = NULL;
    session_plan_release(session);
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
    return exec_upload(session->exec, session->model->scalars, 0, session->scalars,
                       SCALAR_HOST_COUNT);
}
