/* A session: turns a configuration into a bound plan on a device.
 *
 * The order is device, plan, and only then memory.  The configuration names the backend and the device, or a profile
 * that stands for one.  Other programs may have taken memory since the plan was made; a training session is then
 * planned again for what is left.
 */
#include "train/session.h"

#include <config.h>

#include "base/size.h"
#include "base/system_memory.h"

/* A build with --enable-debug poisons dead bytes. */
#ifdef GT_DEBUG
#define DEBUG_RUN true
#else
#define DEBUG_RUN false
#endif
#define PIECE_ELEMENTS 8192 /* of a buffer on the stack */
/* Default margin for other programs, without a memory_budget: a twentieth of the free memory, at least 256 MiB. */
#define BUDGET_MARGIN_PART 20
#define BUDGET_MARGIN_BYTES ((uint64_t)256 << 20)
#define BUDGET_MARGIN_PART_MOST 2 /* cap of that margin, so that less free memory never means a larger budget */

/* ---- the device ---- */

/* Opens the device that a profile describes. */
static enum gt_status profile_open(const struct config *config, struct session_device *device)
{
    struct device_profile *profile = &device->profile;
    const struct config_device wanted = config_device(config);
    TRY(device_profile_find(config->device_profile, profile));
    device->has_profile = true;
    if (wanted.backend != CONFIG_BACKEND_AUTO && strcmp(wanted.word, profile->backend) != 0)
        return FAIL(GT_USAGE, "device_profile '%s' is a %s device; leave --backend=%s out", profile->id,
                    profile->backend, wanted.word);
    return profile_device_open(profile, &device->backend);
}

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
 * device; on it, the named device or the backend's default. */
static enum gt_status backend_open(const struct config *config, struct backend **out)
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
    struct backend_open_options options = {.name = device.name,
                                           .device = device.index >= 0   ? device.index
                                                     : devices.first > 0 ? devices.first
                                                                         : 0,
                                           .threads = (int32_t)config->threads,
                                           .tf32 = config->tf32,
                                           .no_graphs = config->cuda_graphs == CONFIG_CUDA_GRAPHS_OFF,
                                           .tune = config->tune};
    return ops->open(&options, out);
}

bool session_device_has(const struct session_device *device, enum dtype dtype)
{
    return (device->info.dtypes >> dtype & 1u) != 0;
}

/* Sets the dtype of weights and activations: as configured, or the nearest that the device supports, with a note.  auto
 * is float32 on a cpu, elsewhere bfloat16, or float16 (with loss scaling) if the device lacks that. */
static void dtype_choose(const struct config *config, struct session_device *device)
{
    static const enum dtype wanted[] = {
        [CONFIG_DTYPE_FLOAT32] = DTYPE_F32, [CONFIG_DTYPE_BFLOAT16] = DTYPE_BF16, [CONFIG_DTYPE_FLOAT16] = DTYPE_F16};
    const enum dtype preferred = device->info.host_memory ? DTYPE_F32 : DTYPE_BF16;
    const enum dtype dtype = config->dtype == CONFIG_DTYPE_AUTO ? preferred : wanted[config->dtype];
    device->dtype = dtype;
    if (!session_device_has(device, device->dtype))
        device->dtype = dtype == DTYPE_BF16 && session_device_has(device, DTYPE_F16) ? DTYPE_F16 : DTYPE_F32;
    if (device->dtype != dtype)
        log_note("%s has no %s; using %s%s", device->info.device, dtype_name(dtype), dtype_name(device->dtype),
                 device->dtype == DTYPE_F16 ? ", with loss scaling" : "");
}

/* Returns the default budget if `free_bytes` are free: it leaves a margin to other programs. */
static uint64_t free_budget(uint64_t free_bytes)
{
    const uint64_t part = free_bytes / BUDGET_MARGIN_PART, most = free_bytes / BUDGET_MARGIN_PART_MOST;
    const uint64_t least = most < BUDGET_MARGIN_BYTES ? most : BUDGET_MARGIN_BYTES;
    return free_bytes - (part > least ? part : least);
}

/* Sets the budget: memory_budget, else from the free memory.  A profile's card can give a little less than its nominal
 * memory. */
static enum gt_status budget_set(const struct config *config, struct session_device *device)
{
    char total[24];
    const uint64_t most = device->has_profile ? device->profile.memory_bytes : device->info.total_bytes;
    const uint64_t free_bytes = device->info.free_bytes;
    TRY(config_memory_budget(config, device->info.total_bytes, &device->budget_bytes));
    if (config_key_was_set(config, CONFIG_KEY_memory_budget) && most > 0 && device->budget_bytes > most)
        return FAIL(GT_USAGE, "memory_budget '%s' is more than %s has: %s", config->memory_budget, device->info.device,
                    log_bytes(total, (double)most));
    device->has_budget = device->budget_bytes > 0;
    if (device->has_budget)
        return GT_OK;
    device->budget_bytes = free_budget(free_bytes);
    if (device->has_profile)
        device->budget_bytes = free_bytes; /* the profile's usable memory already excludes other users */
    if (free_bytes == 0)
        device->budget_bytes = UINT64_MAX; /* unknown */
    return GT_OK;
}

/* Sets the budget of the arena in host memory: host_budget, else half of what is free.  Of the machine that a profile's
 * card is in, nothing is known. */
static enum gt_status host_budget_set(const struct config *config, struct session_device *device)
{
    char total_text[24];
    uint64_t total = 0, free_bytes = 0;
    const bool is_known = system_memory_read(&total, &free_bytes) && !device->has_profile;
    TRY(config_host_budget(config, total, &device->host_budget_bytes));
    if (is_known && device->host_budget_bytes > total)
        return FAIL(GT_USAGE, "host_budget '%s' is more than this machine has: %s", config->host_budget,
                    log_bytes(total_text, (double)total));
    if (is_known && !config_key_was_set(config, CONFIG_KEY_host_budget))
        device->host_budget_bytes = free_bytes / 2;
    return GT_OK;
}

static enum gt_status device_open(const struct config *config, struct session_device *out)
{
    char limit[24];
    TRY(config->device_profile[0] != '\0' ? profile_open(config, out) : backend_open(config, &out->backend));
    out->backend->record = &out->record;
    TRY(backend_info(out->backend, &out->info));
    if (out->info.host_memory && system_memory_space_is_limit())
        log_note("ulimit -v limits the memory of this process to %s", log_bytes(limit, (double)out->info.total_bytes));
    TRY(budget_set(config, out));
    TRY(host_budget_set(config, out));
    dtype_choose(config, out);
    return GT_OK;
}

/* ---- the session ---- */

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

enum gt_status session_open(struct hostmem *mem, const struct config *config, struct session *out)
{
    *out = (struct session){.mem = mem, .config = config};
    enum gt_status status = device_open(config, &out->device);
    if (status != GT_OK)
        session_close(out);
    return status;
}

void session_close(struct session *session)
{
    exec_destroy(session->exec);
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

/* Returns how many bytes the device's free memory is short of the plan, whatever the budget says. */
static uint64_t bytes_lacking(const struct session *session)
{
    const uint64_t host = session->device.info.host_memory ? session->plan->host_bytes : 0;
    uint64_t need =
        session->plan->arena_bytes + host + session->device.info.context_bytes + session_headroom_bytes(session);
    uint64_t free_bytes = session->device.info.free_bytes;
    return free_bytes > 0 && need > free_bytes ? need - free_bytes : 0;
}

/* Replaces the plan by one for the budgets as they are now. */
static enum gt_status plan_replace(struct session *session)
{
    const struct model_options options = session->search.request.options;
    plan_release(session);
    TRY(session_plan(session, &options));
    return session_fits(session);
}

/* Makes another plan for the memory that other programs have left. */
static enum gt_status plan_again(struct session *session)
{
    char lacking[24], have[24], holders[BACKEND_HOLDERS_TEXT_MAX];
    log_note("%s are free on %s now, %s less than the plan needs (other processes: %s); planning again",
             log_bytes(have, (double)session->device.info.free_bytes), session->device.info.device,
             log_bytes(lacking, (double)bytes_lacking(session)),
             backend_holders_known(holders, session->device.backend));
    session->device.budget_bytes = free_budget(session->device.info.free_bytes);
    return plan_replace(session);
}

/* If other programs have taken the host memory that the optimizer state needs, makes another plan for what is left. */
static enum gt_status host_check(struct session *session)
{
    uint64_t total, free_bytes;
    char have[24];
    if (session->device.info.host_memory || !system_memory_read(&total, &free_bytes) ||
        session->plan->host_bytes <= free_bytes)
        return GT_OK;
    log_note("%s of host memory are free now, less than the plan needs; planning again",
             log_bytes(have, (double)free_bytes));
    session->device.host_budget_bytes = free_budget(free_bytes);
    return plan_replace(session);
}

enum gt_status session_start(struct session *session)
{
    struct exec_options options = {.poison = DEBUG_RUN};
    TRY(session_fits(session));
    TRY(host_check(session));
    TRY(backend_info(session->device.backend, &session->device.info));
    if (bytes_lacking(session) > 0 && session->model->options.train)
        TRY(plan_again(session));
    if (bytes_lacking(session) > 0) {
        char needed[24], have[24], holders[BACKEND_HOLDERS_TEXT_MAX];
        uint64_t free_bytes = session->device.info.free_bytes;
        return FAIL(
            GT_NO_FIT,
            ERROR_NO_FIT "not enough memory: this run needs %s, and %s are free on %s now (other processes: %s)",
            log_bytes(needed, (double)(free_bytes + bytes_lacking(session))), log_bytes(have, (double)free_bytes),
            session->device.info.device, backend_holders_known(holders, session->device.backend));
    }
    return exec_create(session->mem, session->device.backend, session->plan, &options, &session->exec);
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
