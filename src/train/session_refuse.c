/* What a user is told about a plan that does not fit: how much memory is missing, who has it, and what would fit.
 *
 * It asks the device for both, which planning alone must not.
 */
#include "base/clock.h"
#include "train/session.h"

/* Logs how much of each memory a plan needs and how much is available, with the other processes that use the device if
 * free memory is the limit.  Returns GT_NO_FIT. */
static enum gt_status refuse(const struct session *session, uint64_t arena_bytes, uint64_t host_bytes)
{
    char least[24], host[96] = "", holders[BACKEND_HOLDERS_TEXT_MAX];
    if (host_bytes > 0)
        snprintf(host, sizeof host, "%s of host memory, host_budget allows %s", search_budget_text(least, host_bytes),
                 LOG_BYTES(session->device.host_budget_bytes));
    if (arena_bytes <= session_arena_budget(session))
        return FAIL(GT_NO_FIT, ERROR_NO_FIT "not enough host memory: this offload needs %s", host);
    const char *and = host[0] != '\0' ? "; and " : "";
    const char *needed = search_budget_text(least, session_budget_of(session, arena_bytes));
    const char *unit = needed + strspn(needed, "0123456789.");
    const int digits = (int)(unit - needed);
    const char *have = LOG_BYTES(session->device.budget_bytes);
    if (session->device.has_budget)
        return FAIL(GT_NO_FIT,
                    ERROR_NO_FIT "not enough memory: this run needs at least %.*s %s, memory_budget allows %s%s%s",
                    digits, needed, unit, have, and, host);
    backend_holders_read(holders, session->device.backend);
    return FAIL(GT_NO_FIT,
                ERROR_NO_FIT "not enough memory: this run needs at least %.*s %s, %s has %s available%s%s%s%s", digits,
                needed, unit, session->device.info.device, have, holders[0] != '\0' ? "; others hold most: " : "",
                holders, and, host);
}

enum gt_status session_fits(const struct session *session)
{
    const struct plan *plan = session->plan;
    if (plan->arena_bytes <= session_arena_budget(session) && plan->host_bytes <= session->device.host_budget_bytes)
        return GT_OK;
    return refuse(session, plan->arena_bytes, plan->host_bytes);
}

/* Returns the seconds of an update of the smallest plan at the session's rates, divided by those at the rates of the
 * search. */
static double time_scale(const struct session *session)
{
    struct model_options options = session->search.result.found.options;
    struct model *model;
    if (session->search.result.arena_least) /* building all of it would take long */
        search_micro_batch_set(&options, options.choice.micro_batch, options.choice.micro_batch);
    if (model_create(session->mem, &options, &model) != GT_OK)
        return 1.0;
    const double own = search_update_seconds(model, &session->timing.rates, plan_cost_blocks);
    const double nominal = search_update_seconds(model, &session->search.request.rates, plan_cost_blocks);
    hostmem_free(model);
    return own > 0.0 && nominal > 0.0 ? own / nominal : 1.0;
}

/* To be called after a refused search.  Logs up to three plans that do fit as notes, with the keys that change and
 * their modelled times on this device: those at the search's rates, scaled by the ratio of the smallest plan's times at
 * the device's own rates, measured in a small arena, and at the search's.  Afterwards the session can only be closed.
 * A failure here is not an error: the refusal has already been logged. */
static void choices_log(struct session *session)
{
    struct search_choice choices[SEARCH_CHOICES_MAX];
    int32_t count = 0;
    if (search_choices(session->mem, &session->search.request, choices, &count) != GT_OK)
        return;
    if (count == 0) {
        log_note("nothing smaller fits this budget either");
        return;
    }
    session->timing.rates = session->search.request.rates;
    bool measured = session_peak_measure(session) == GT_OK;
    double scale = measured ? time_scale(session) : 1.0;
    for (int32_t i = 0; i < count; i++) {
        const struct search_choice *choice = &choices[i];
        char changes[SEARCH_CHANGES_MAX], budget[24];
        log_note("alternative %" PRId32 " that fits: %s; %s of tensors, %s per update (estimated), memory_budget %s%s",
                 i + 1, search_choice_text(changes, choice, &session->search.request.options),
                 LOG_BYTES(choice->arena_bytes), CLOCK_DURATION(choice->seconds * scale),
                 search_budget_text(budget, session_budget_of(session, choice->arena_bytes)),
                 search_choice_equivalent(choice->kind) ? "" : "; changes the results");
    }
}

enum gt_status session_plan(struct session *session, const struct model_options *options)
{
    enum gt_status status = session_plan_make(session, options);
    if (status != GT_NO_FIT || session->model != NULL) /* plan_create() has logged its own */
        return status;
    status = refuse(session, session->search.result.found.arena_bytes, session->search.result.found.host_bytes);
    choices_log(session);
    return status;
}
