/* A session: turns a configuration into a bound plan on a device.
 *
 * The order is device, plan, and only then memory.  The configuration names the backend and the device;
 * session_device.c has the profile that may stand for one.  Other programs may have taken memory since the plan was
 * made; a training session is then planned again for what is left.
 *
 * If a plan does not fit, the user is told how much memory is missing, who has it, and what would fit.  That asks the
 * device, which planning alone (session_plan.c) must not.
 */
#include "session/session.h"

#include "backend/backend_call.h"
#include "backend/backend_holders.h"
#include "backend/backend_registry.h"
#include "base/clock.h"
#include "base/size.h"
#include "base/system_memory.h"

#define PIECE_ELEMENTS 8192 /* of a buffer on the stack */

/* ---- the device ---- */

/* Returns the first backend of the build with a usable device.  Logs why the ones before it have none. */
static const struct backend_ops *backend_first(void)
{
    for (const struct backend_ops *const *ops = backend_registry(); *ops; ops++) {
        struct backend_devices devices;
        (*ops)->devices(true, &devices);
        if (devices.first >= 0)
            return *ops;
        if (devices.reason[0] != '\0')
            log_note("not using %s: %s", (*ops)->name, devices.reason);
    }
    return NULL;
}

/* Opens the backend that the configuration names, or GPT_TRAIN_BACKEND in the environment, or the first one with a
 * device; on it, the named device or the backend's default.  Of several ranks each opens the next device, in turn;
 * *sharers is set to how many open the same. */
static enum gt_status backend_open(const struct config *config, struct backend **out, int32_t *sharers)
{
    const struct config_device device = config_device(config);
    const bool is_auto = device.backend == CONFIG_BACKEND_AUTO;
    const char *wanted = is_auto ? getenv("GPT_TRAIN_BACKEND") : device.word;
    const bool is_named = wanted && wanted[0] != '\0';
    const struct backend_ops *ops = is_named ? backend_find(wanted) : backend_first();
    if (!ops)
        return FAIL(GT_UNSUPPORTED, ERROR_NO_DEVICE "%s'%s': this build has no such backend",
                    is_auto ? "GPT_TRAIN_BACKEND=" : "backend = ", is_named ? wanted : "");
    struct backend_devices devices;
    ops->devices(!is_named, &devices);
    if (device.index >= devices.count && devices.count > 0)
        return FAIL(GT_USAGE,
                    ERROR_NO_DEVICE "device = '%s': %s has %" PRId32
                                    " device%s, numbered from 0 (--list_devices shows them)",
                    config->device, ops->name, devices.count, devices.count == 1 ? "" : "s");
    const int32_t first = device.index >= 0 ? device.index : devices.first > 0 ? devices.first : 0;
    const bool in_turn = device.name == NULL && config->devices[0] == '\0';
    const int32_t cards = in_turn && devices.count > first ? devices.count - first : 1;
    *sharers = config->devices[0] != '\0' ? 1 : (int32_t)size_ceil_div(config->local_ranks, cards);
    struct backend_open_options options = {.name = device.name,
                                           .device = first + config->local_rank % cards,
                                           .threads = (int32_t)config->threads,
                                           .tf32 = config->tf32,
                                           .half_sums = config->half_sums != CONFIG_HALF_SUMS_OFF,
                                           .half_sums_anywhere = config->half_sums == CONFIG_HALF_SUMS_ON,
                                           .no_graphs = config->cuda_graphs == CONFIG_CUDA_GRAPHS_OFF,
                                           .tune = config->tune};
    return ops->open(&options, out);
}

/* ---- the session ---- */

static void plan_release(struct session *session)
{
    hostmem_free(session->plan);
    hostmem_free(session->model);
    hostmem_free(session->staging);
    session->plan = NULL;
    session->model = NULL;
    session->staging = NULL;
}

enum gt_status session_open(struct hostmem *mem, const struct config *config, struct session *out)
{
    struct device_profile profile;
    uint64_t total = 0, free_bytes = 0;
    if (config->device_profile[0] != '\0') {
        TRY(device_profile_find(config->device_profile, &profile));
        return session_open_profile(mem, config, &profile, out);
    }
    *out = (struct session){.mem = mem, .config = config};
    TRY(backend_open(config, &out->device.backend, &out->device.sharers));
    (void)system_memory_read(&total, &free_bytes);
    enum gt_status status = session_device_settle(out, total, free_bytes);
    if (status == GT_OK && out->device.info.host_memory && system_memory_space_is_limit())
        log_note("ulimit -v limits the memory of this process to %s", LOG_BYTES(out->device.info.total_bytes));
    if (status != GT_OK)
        session_close(out);
    return status;
}

void session_close(struct session *session)
{
    hostmem_free(session->exec);
    search_memo_close(&session->search.memo);
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

/* ---- a plan that does not fit ---- */

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
    struct model *model;
    if (model_create(session->mem, &session->search.result.found.options, &model) != GT_OK)
        return 1.0;
    const double own = measure_update_seconds(model, &session->timing.rates, plan_cost_blocks);
    const double nominal = measure_update_seconds(model, &session->search.request.rates, plan_cost_blocks);
    hostmem_free(model);
    return own > 0.0 && nominal > 0.0 ? own / nominal : 1.0;
}

/* To be called after a refused search.  Logs as notes what would be enough without the keys that were set, and up to
 * three plans that do fit, with the keys that change and their modelled times on this device: those at the search's
 * rates, scaled by the ratio of the smallest plan's times at the device's own rates, measured in a small arena, and at
 * the search's.  Afterwards the session can only be closed.  A failure here is not an error: the refusal has already
 * been logged. */
static void choices_log(struct session *session)
{
    struct search_choice choices[SEARCH_CHOICES_MAX];
    char pins[SESSION_PINS_TEXT_MAX];
    int32_t count = 0;
    if (session_pins_text(session, pins) != GT_OK)
        return;
    if (pins[0] != '\0')
        log_note("enough would be %s", pins);
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

/* ---- the start ---- */

/* Returns how many bytes the device's free memory is short of the plan, whatever the budget says. */
static uint64_t bytes_lacking(const struct session *session)
{
    const uint64_t host = session->device.info.host_memory ? session->plan->host_bytes : 0;
    uint64_t need =
        session->plan->arena_bytes + host + session->device.info.context_bytes + session_headroom_bytes(session);
    uint64_t free_bytes = session->device.info.free_bytes;
    return free_bytes > 0 && need > free_bytes ? need - free_bytes : 0;
}

enum gt_status session_replan(struct session *session, const struct model_options *options)
{
    struct model_options wanted = *options;
    wanted.rank = session->model->options.rank; /* the search's own is that with the most states */
    plan_release(session);
    TRY(session_plan(session, &wanted));
    return session_fits(session);
}

/* Makes another plan for the memory that other programs have left. */
static enum gt_status plan_again(struct session *session)
{
    log_note("%s are free on %s now, %s less than the plan needs (other processes: %s); planning again",
             LOG_BYTES(session->device.info.free_bytes), session->device.info.device, LOG_BYTES(bytes_lacking(session)),
             BACKEND_HOLDERS_KNOWN(session->device.backend));
    session->device.budget_bytes = session_free_budget(session->device.info.free_bytes);
    return session_replan(session, &session->search.request.options);
}

/* If other programs have taken the host memory that offload needs, makes another plan for what is left. */
static enum gt_status host_check(struct session *session)
{
    uint64_t total, free_bytes;
    if (session->device.info.host_memory || !system_memory_read(&total, &free_bytes) ||
        session->plan->host_bytes <= free_bytes)
        return GT_OK;
    log_note("%s of host memory are free now, less than the plan needs; planning again", LOG_BYTES(free_bytes));
    session->device.host_budget_bytes = session_free_budget(free_bytes);
    return session_replan(session, &session->search.request.options);
}

enum gt_status session_start(struct session *session)
{
    TRY(session_fits(session));
    TRY(host_check(session));
    TRY(backend_info(session->device.backend, &session->device.info));
    if (bytes_lacking(session) > 0 && session->model->options.train && session->dist == NULL)
        TRY(plan_again(session));
    if (bytes_lacking(session) > 0) {
        uint64_t free_bytes = session->device.info.free_bytes;
        return FAIL(GT_NO_FIT,
                    ERROR_NO_FIT
                    "not enough memory: this run needs %s, and %s are free on %s now (other processes: %s)",
                    LOG_BYTES(free_bytes + bytes_lacking(session)), LOG_BYTES(free_bytes), session->device.info.device,
                    BACKEND_HOLDERS_KNOWN(session->device.backend));
    }
    const bool poison = session->plan->options.guard_bytes > 0; /* a build with --enable-debug poisons dead bytes */
    TRY(exec_create(session->mem, session->device.backend, session->plan, poison, &session->exec));
    exec_dist_set(session->exec, session->dist, session->staging);
    return GT_OK;
}

/* ---- values of any float dtype ---- */

enum gt_status values_upload(struct exec *exec, const struct graph *graph, int32_t tensor, int64_t first,
                             const float *values, int64_t count)
{
    enum dtype dtype = graph->tensors[tensor].dtype;
    uint16_t halves[PIECE_ELEMENTS];
    if (dtype == DTYPE_F32)
        return exec_upload(exec, tensor, first, values, count);
    assert(dtype == DTYPE_BF16 || dtype == DTYPE_F16);
    for (int64_t done = 0; done < count; done += PIECE_ELEMENTS) {
        int64_t part = min_i64(count - done, PIECE_ELEMENTS);
        dtype_convert(halves, dtype, values + done, DTYPE_F32, (size_t)part);
        TRY(exec_upload(exec, tensor, first + done, halves, part));
    }
    return GT_OK;
}

enum gt_status values_download(struct exec *exec, const struct graph *graph, int32_t tensor, int64_t first,
                               float *values, int64_t count)
{
    enum dtype dtype = graph->tensors[tensor].dtype;
    uint16_t halves[PIECE_ELEMENTS];
    if (dtype == DTYPE_F32)
        return exec_download(exec, tensor, first, values, count);
    assert(dtype == DTYPE_BF16 || dtype == DTYPE_F16);
    for (int64_t done = 0; done < count; done += PIECE_ELEMENTS) {
        int64_t part = min_i64(count - done, PIECE_ELEMENTS);
        TRY(exec_download(exec, tensor, first + done, halves, part));
        dtype_convert(values + done, DTYPE_F32, halves, dtype, (size_t)part);
    }
    return GT_OK;
}
