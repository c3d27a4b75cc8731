/* What a session knows about its device: the budgets, the dtype, and the nominal rates.
 *
 * All of it follows from the configuration and from the device's description, or from a profile
 * that stands for a device.  No function here reads a file, a clock or a device, so that a page can
 * plan too (packaging/page.c).
 */
#include "session/session_device.h"

#include "backend/backend_call.h"
#include "config/config_check.h"
#include "config/config_key.h"
#include "config/config_text.h"
#include "session/session.h"
#include "session/session_budget.h"

/* The matrix rate of the nominal cpu. */
#define NOMINAL_PEAK_FLOPS 200e9
/* The link of a card whose products would have that rate, if one with 25 TFLOP/s has 12.5 GB/s. */
#define NOMINAL_LINK_BYTES_PER_S 0.1e9

enum gt_status session_open_profile(struct hostmem *mem, const struct config *config,
                                    const struct device_profile *profile, struct session *out)
{
    const struct config_device wanted = config_device(config);
    *out = (struct session){
        .mem = mem, .config = config, .device = {.has_profile = true, .profile = *profile}};
    if (wanted.backend != CONFIG_BACKEND_AUTO && strcmp(wanted.word, profile->backend) != 0)
        return FAIL(GT_USAGE, "device_profile '%s' is a %s device; leave --backend=%s out",
                    profile->id, profile->backend, wanted.word);
    TRY(profile_device_open(profile, &out->device.backend));
    enum gt_status status =
        session_device_resolve(out, 0, 0); /* nothing is known of the machine that the card is in */
    if (status != GT_OK) {
        backend_close(out->device.backend);
        out->device.backend = NULL;
    }
    return status;
}

enum dtype session_device_dtype(const struct session_device *device, enum dtype dtype)
{
    if (device->info.dtypes >> dtype & 1u)
        return dtype;
    return dtype == DTYPE_BF16 && (device->info.dtypes >> DTYPE_F16 & 1u) ? DTYPE_F16 : DTYPE_F32;
}

/* Sets the dtype of weights and activations: as configured, or the nearest that the device
 * supports, with a note.  auto is float32 on a cpu, elsewhere bfloat16, or float16 (with loss
 * scaling) if the device lacks that. */
static void dtype_choose(const struct config *config, struct session_device *device)
{
    static const enum dtype wanted[] = {[CONFIG_DTYPE_FLOAT32] = DTYPE_F32,
                                        [CONFIG_DTYPE_BFLOAT16] = DTYPE_BF16,
                                        [CONFIG_DTYPE_FLOAT16] = DTYPE_F16};
    const enum dtype preferred = device->info.host_memory ? DTYPE_F32 : DTYPE_BF16;
    const enum dtype dtype = config->dtype == CONFIG_DTYPE_AUTO ? preferred : wanted[config->dtype];
    device->dtype = session_device_dtype(device, dtype);
    if (device->dtype != dtype)
        log_note("%s has no %s; using %s%s", device->info.device, dtype_name(dtype),
                 dtype_name(device->dtype),
                 device->dtype == DTYPE_F16 ? ", with loss scaling" : "");
    if (config->half_sums == CONFIG_HALF_SUMS_ON && device->dtype != DTYPE_F16)
        log_note("half_sums has no effect with dtype=%s", dtype_name(device->dtype));
}

/* Sets the budget: memory_budget, else from the free memory.  A profile's card can give a little
 * less than its nominal memory. */
static enum gt_status budget_set(const struct config *config, struct session_device *device)
{
    const uint64_t most =
        device->has_profile ? device->profile.memory_bytes : device->info.total_bytes;
    const uint64_t free_bytes = device->info.free_bytes;
    TRY(config_memory_budget(config, device->info.total_bytes, &device->machine_budget_bytes));
    if (config_key_was_set(config, CONFIG_KEY_memory_budget) && most > 0 &&
        device->machine_budget_bytes > most)
        return FAIL(GT_USAGE, "memory_budget '%s' is more than %s has: %s", config->memory_budget,
                    device->info.device, LOG_BYTES(most));
    device->has_budget = device->machine_budget_bytes > 0;
    if (device->has_budget)
        return GT_OK;
    device->machine_budget_bytes = session_free_budget(free_bytes);
    if (device->has_profile)
        device->machine_budget_bytes =
            free_bytes; /* the profile's usable memory already excludes other users */
    if (free_bytes == 0)
        device->machine_budget_bytes = UINT64_MAX; /* unknown */
    return GT_OK;
}

/* Sets the budget of the arena in host memory: host_budget, else half of what is free; total_bytes
 * is 0 if the host's memory is unknown. */
static enum gt_status host_budget_set(const struct config *config, uint64_t total_bytes,
                                      uint64_t free_bytes, struct session_device *device)
{
    TRY(config_host_budget(config, total_bytes, &device->host_share_bytes));
    if (total_bytes > 0 && device->host_share_bytes > total_bytes)
        return FAIL(GT_USAGE, "host_budget '%s' is more than this machine has: %s",
                    config->host_budget, LOG_BYTES(total_bytes));
    if (total_bytes > 0 && !config_key_was_set(config, CONFIG_KEY_host_budget))
        device->host_share_bytes = free_bytes / 2;
    device->host_share_bytes /= (uint64_t)config->local_ranks;
    return GT_OK;
}

enum gt_status session_device_resolve(struct session *session, uint64_t host_total_bytes,
                                      uint64_t host_free_bytes)
{
    struct session_device *device = &session->device;
    device->backend->record = &device->record;
    TRY(backend_info(device->backend, &device->info));
    TRY(budget_set(session->config, device));
    TRY(host_budget_set(session->config, host_total_bytes, host_free_bytes, device));
    dtype_choose(session->config, device);
    return GT_OK;
}

/* ---- the rates ---- */

/* The speed of gated_delta's kernels on cards is a guess (plan_cost.c). */
#define DELTA_UNCERTAINTY 2.0

struct plan_rates session_rates_nominal(const struct session *session)
{
    struct plan_rates rates = plan_rates_of_peaks(NOMINAL_PEAK_FLOPS, NOMINAL_PEAK_FLOPS);
    if (session->device.has_profile)
        return plan_rates_of_profile(&session->device.profile,
                                     session->config->half_sums != CONFIG_HALF_SUMS_OFF);
    if (!session->device.info.host_memory)
        plan_rates_link_set(&rates, NOMINAL_LINK_BYTES_PER_S, session->device.info.copy_engines);
    return rates;
}

void session_rates_profile(struct session *session)
{
    char basis[512];
    log_note("%s", plan_rates_basis(basis, &session->device.profile));
    session->timing.peak_flops = session->device.profile.vector_flops_per_s;
    session->timing.rates = session_rates_nominal(session);
    if (session->config->full_attention_interval > 1)
        session->timing.rates.uncertainty = DELTA_UNCERTAINTY;
}
