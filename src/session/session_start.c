/* Starts a session: plans it, checks that the memory is still there, and allocates the arena.
 *
 * Other programs may have taken memory since the plan was made; a training session is then planned
 * again for what is left.  If a plan does not fit, the user learns how much memory is missing, who
 * has it, and what would fit.  That queries the device, which planning alone (session_plan.c) must
 * not do.
 */
#include "session/session_start.h"
#include "model/model_create.h"

#include "backend/backend_call.h"
#include "backend/backend_holders.h"
#include "base/clock.h"
#include "base/size.h"
#include "base/system_memory.h"
#include "config/config_key.h"
#include "plan/plan_alternatives.h"
#include "session/session_budget.h"
#include "session/session_plan.h"
#include "session/session_rates.h"

/* Logs how much of each memory a plan needs and how much is available, with the other processes
 * that use the device if free memory is the limit.  Returns GT_NO_FIT. */
static enum gt_status refuse(const struct session *session, uint64_t arena_bytes,
                             uint64_t host_bytes)
{
    char least[24], host[96] = "", holders[BACKEND_HOLDERS_TEXT_MAX];
    if (host_bytes > 0)
        snprintf(host, sizeof host, "%s of host memory, host_budget allows %s%s",
                 search_budget_text(least, host_bytes), LOG_BYTES(session->device.host_share_bytes),
                 config_key_was_set(session->config, CONFIG_KEY_host_budget) ||
                         session->device.has_profile
                     ? ""
                     : ", half of what is free");
    if (arena_bytes <= session_share(session).device_bytes)
        return FAIL(GT_NO_FIT, ERROR_NO_FIT "not enough host memory: this offload needs %s", host);
    const char *and = host[0] != '\0' ? "; and " : "";
    const char *needed = search_budget_text(least, session_budget_of(session, arena_bytes));
    const char *unit = needed + strspn(needed, "0123456789.");
    const int digits = (int)(unit - needed);
    const char *have = LOG_BYTES(session->device.machine_budget_bytes);
    if (session->device.has_budget)
        return FAIL(
            GT_NO_FIT,
            ERROR_NO_FIT
            "not enough memory: this run needs at least %.*s %s, memory_budget allows %s%s%s",
            digits, needed, unit, have, and, host);
    backend_holders_read(holders, session->device.backend);
    return FAIL(GT_NO_FIT,
                ERROR_NO_FIT
                "not enough memory: this run needs at least %.*s %s, %s has %s available%s%s%s%s",
                digits, needed, unit, session->device.info.device, have,
                holders[0] != '\0' ? "; others hold most: " : "", holders, and, host);
}

enum gt_status session_fit_check(const struct session *session)
{
    const struct plan *plan = session->plan;
    const struct plan_share share = session_share(session);
    if (plan_share_fits(&share, plan->arena_bytes, plan->host_bytes))
        return GT_OK;
    return refuse(session, plan->arena_bytes, plan->host_bytes);
}

/* Returns the seconds of an update of the smallest plan at the session's rates, divided by those at
 * the rates of the search. */
static double time_scale(const struct session *session)
{
    struct model *model;
    if (model_create(session->mem, &session->search.result.found.options, &model) != GT_OK)
        return 1.0;
    const double measured = measure_update_seconds(model, &session->timing.rates, plan_cost_blocks);
    const double nominal =
        measure_update_seconds(model, &session->search.request.rates, plan_cost_blocks);
    hostmem_free(model);
    return measured > 0.0 && nominal > 0.0 ? measured / nominal : 1.0;
}

/* To be called after a refused search.  Logs as notes what would be enough without the keys that
 * were set, and up to three plans that do fit, with the keys that they change and their modelled
 * times on this device.  These are the times at the search's rates, multiplied by time_scale(); the
 * device's own rates are measured in a small arena.  Afterwards the session can only be closed.  A
 * failure here is not an error: the refusal has already been logged. */
static void alternatives_log(struct session *session)
{
    struct search_alternative alternatives[SEARCH_ALTERNATIVES_MAX];
    char pins[SESSION_PINS_TEXT_MAX];
    int32_t count = 0;
    if (session_pins_text(session, pins) != GT_OK)
        return;
    if (pins[0] != '\0')
        log_note("a memory_budget of %s would be enough", pins);
    if (search_alternatives(session->mem, &session->search.request, alternatives, &count) != GT_OK)
        return;
    if (count == 0) {
        log_note("nothing smaller fits this budget either");
        return;
    }
    session->timing.rates = session->search.request.rates;
    bool measured = session_peak_measure(session) == GT_OK;
    double scale = measured ? time_scale(session) : 1.0;
    for (int32_t i = 0; i < count; i++) {
        const struct search_alternative *choice = &alternatives[i];
        char changes[SEARCH_CHANGES_MAX], budget[24];
        log_note("alternative %" PRId32
                 " that fits: %s; %s of tensors, %s per update (estimated), memory_budget %s%s",
                 i + 1, search_alternative_text(changes, choice, &session->search.request.options),
                 LOG_BYTES(choice->arena_bytes), CLOCK_DURATION(choice->seconds * scale),
                 search_budget_text(budget, session_budget_of(session, choice->arena_bytes)),
                 search_alternative_equivalent(choice->kind) ? "" : "; changes the results");
    }
}

enum gt_status session_plan(struct session *session, const struct model_options *options)
{
    enum gt_status status = session_plan_make(session, options);
    if (status != GT_NO_FIT)
        return status;
    if (session->model == NULL) /* else plan_create() has logged which tensor is too large */
        status = refuse(session, session->search.result.found.arena_bytes,
                        session->search.result.found.host_bytes);
    alternatives_log(session);
    return status;
}

/* ---- the start ---- */

/* Returns how many bytes of free memory the device lacks for the plan, whatever the budget is. */
static uint64_t bytes_lacking(const struct session *session)
{
    const uint64_t host = session->device.info.host_memory ? session->plan->host_bytes : 0;
    uint64_t need = session->plan->arena_bytes + host + session->device.info.context_bytes +
                    session_headroom_bytes(session);
    uint64_t free_bytes = session->device.info.free_bytes;
    return free_bytes > 0 && need > free_bytes ? need - free_bytes : 0;
}

enum gt_status session_replan(struct session *session, const struct model_options *options)
{
    struct model_options wanted = *options;
    wanted.rank =
        session->model->options.rank; /* the search's own rank is the one with the most states */
    session_plan_release(session);
    TRY(session_plan(session, &wanted));
    return session_fit_check(session);
}

/* Makes another plan for the memory that other programs have left. */
static enum gt_status plan_again(struct session *session)
{
    log_note(
        "%s are free on %s now, %s less than the plan needs (other processes: %s); planning again",
        LOG_BYTES(session->device.info.free_bytes), session->device.info.device,
        LOG_BYTES(bytes_lacking(session)), BACKEND_HOLDERS_KNOWN(session->device.backend));
    session->device.machine_budget_bytes = session_free_budget(session->device.info.free_bytes);
    return session_replan(session, &session->search.request.options);
}

/* If other programs have taken the host memory that offload needs, makes another plan for what is
 * left. */
static enum gt_status host_check(struct session *session)
{
    uint64_t total, free_bytes;
    if (session->device.info.host_memory || !system_memory_read(&total, &free_bytes) ||
        session->plan->host_bytes <= free_bytes)
        return GT_OK;
    log_note("%s of host memory are free now, less than the plan needs; planning again",
             LOG_BYTES(free_bytes));
    session->device.host_share_bytes = session_free_budget(free_bytes);
    return session_replan(session, &session->search.request.options);
}

enum gt_status session_start(struct session *session)
{
    TRY(session_fit_check(session));
    TRY(host_check(session));
    TRY(backend_info(session->device.backend, &session->device.info));
    if (bytes_lacking(session) > 0 && session->model->options.train && session->dist == NULL)
        TRY(plan_again(session));
    if (bytes_lacking(session) > 0) {
        uint64_t free_bytes = session->device.info.free_bytes;
        return FAIL(
            GT_NO_FIT,
            ERROR_NO_FIT
            "not enough memory: this run needs %s, and %s are free on %s now (other processes: %s)",
            LOG_BYTES(free_bytes + bytes_lacking(session)), LOG_BYTES(free_bytes),
            session->device.info.device, BACKEND_HOLDERS_KNOWN(session->device.backend));
    }
    const bool poison =
        session->plan->options.guard_bytes > 0; /* a build with --enable-debug poisons dead bytes */
    TRY(exec_create(session->mem, session->device.backend, session->plan, poison, &session->exec));
    exec_dist_set(session->exec, session->dist, session->staging);
    return GT_OK;
}
