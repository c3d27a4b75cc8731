/* The device of a session: its choice, the dtype of the weights, and the part of its memory that the run may take.
 *
 * The configuration names the backend and the device, or a profile that stands for one.  Nothing is allocated on it
 * here.
 */
#include "train/session.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/system_memory.h"
#include "plan/profile_device.h"

/* Default margin for other programs, without a memory_budget: a twentieth of the free memory, at least 256 MiB. */
#define BUDGET_MARGIN_PART 20
#define BUDGET_MARGIN_BYTES ((uint64_t)256 << 20)
#define BUDGET_MARGIN_PART_MOST 2 /* cap of that margin, so that less free memory never means a larger budget */

/* Opens the device that a profile describes. */
static enum gt_status profile_open(const struct config *config, const char *id, struct session_device *device)
{
    struct device_profile *profile = &device->profile;
    const struct config_device wanted = config_device(config);
    TRY(device_profile_find(id, profile));
    device->has_profile = true;
    if (wanted.backend != CONFIG_BACKEND_AUTO && strcmp(wanted.word, profile->backend) != 0) {
        log_error("device_profile '%s' is a %s device; leave --backend=%s out", profile->id, profile->backend,
                  wanted.word);
        return GT_USAGE;
    }
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
    if (!ops) {
        log_error("%s'%s': this build has no such backend",
                  is_auto ? "GPT_TRAIN_BACKEND=" : "backend = ", is_named ? wanted : "");
        return GT_UNSUPPORTED;
    }
    struct backend_devices devices;
    ops->devices(!is_named, &devices);
    if (device.index >= devices.count && devices.count > 0) {
        log_error("device = '%s': %s has %" PRId32 " device%s, numbered from 0 (--list_devices shows them)",
                  config->device, ops->name, devices.count, devices.count == 1 ? "" : "s");
        return GT_USAGE;
    }
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
static void dtype_choose(const struct config *config, bool bfloat16, struct session_device *device)
{
    static const enum dtype wanted[] = {
        [CONFIG_DTYPE_FLOAT32] = DTYPE_F32, [CONFIG_DTYPE_BFLOAT16] = DTYPE_BF16, [CONFIG_DTYPE_FLOAT16] = DTYPE_F16};
    const enum dtype preferred = device->info.host_memory && !bfloat16 ? DTYPE_F32 : DTYPE_BF16;
    const enum dtype dtype = config->dtype == CONFIG_DTYPE_AUTO ? preferred : wanted[config->dtype];
    device->dtype = dtype;
    if (!session_device_has(device, device->dtype))
        device->dtype = dtype == DTYPE_BF16 && session_device_has(device, DTYPE_F16) ? DTYPE_F16 : DTYPE_F32;
    if (device->dtype != dtype)
        log_note("%s has no %s; using %s%s", device->info.device, dtype_name(dtype), dtype_name(device->dtype),
                 device->dtype == DTYPE_F16 ? ", with loss scaling" : "");
}

uint64_t session_device_budget(uint64_t free_bytes)
{
    const uint64_t part = free_bytes / BUDGET_MARGIN_PART, most = free_bytes / BUDGET_MARGIN_PART_MOST;
    const uint64_t least = most < BUDGET_MARGIN_BYTES ? most : BUDGET_MARGIN_BYTES;
    return free_bytes - (part > least ? part : least);
}

/* Sets the budget: as assumed, else memory_budget, else from the free memory.  A profile's card can give a little less
 * than its nominal memory. */
static enum gt_status budget_set(const struct config *config, uint64_t assumed, struct session_device *device)
{
    char total[24];
    const uint64_t most = device->has_profile ? device->profile.memory_bytes : device->info.total_bytes;
    const uint64_t free_bytes = device->info.free_bytes;
    device->budget_bytes = assumed;
    if (assumed == 0)
        TRY(config_memory_budget(config, device->info.total_bytes, &device->budget_bytes));
    if (config_key_was_set(config, CONFIG_KEY_memory_budget) && most > 0 && device->budget_bytes > most) {
        log_error("memory_budget '%s' is more than %s has: %s", config->memory_budget, device->info.device,
                  log_bytes(total, (double)most));
        return GT_USAGE;
    }
    device->has_budget = device->budget_bytes > 0;
    if (device->has_budget)
        return GT_OK;
    device->budget_bytes = session_device_budget(free_bytes);
    if (device->has_profile)
        device->budget_bytes = free_bytes; /* the profile's usable memory already excludes other users */
    if (free_bytes == 0)
        device->budget_bytes = UINT64_MAX; /* unknown */
    return GT_OK;
}

enum gt_status session_device_open(const struct config *config, const struct session_assumption *assumed,
                                   struct session_device *out)
{
    char limit[24];
    const char *id = assumed->device_profile[0] != '\0' ? assumed->device_profile : config->device_profile;
    TRY(id[0] != '\0' ? profile_open(config, id, out) : backend_open(config, &out->backend));
    out->backend->record = &out->record;
    TRY(backend_info(out->backend, &out->info));
    if (out->info.host_memory && system_memory_space_is_limit())
        log_note("ulimit -v limits the memory of this process to %s", log_bytes(limit, (double)out->info.total_bytes));
    TRY(budget_set(config, assumed->budget_bytes, out));
    dtype_choose(config, assumed->bfloat16, out);
    return GT_OK;
}
