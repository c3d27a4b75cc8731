/* Opens the device of a session.
 *
 * The configuration names the backend and the device; session_device.c has the profile that may
 * stand for one, and what follows from a device's description.
 */
#include "session/session_open.h"

#include "backend/backend_registry.h"
#include "base/size.h"
#include "base/system_memory.h"
#include "config/config_check.h"
#include "plan/device_profile_file.h"
#include "session/session_device.h"

/* Returns the first backend of the build with a usable device.  Logs why the ones before it have
 * none. */
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

/* Opens the backend that the configuration names, or GPT_TRAIN_BACKEND in the environment, or the
 * first one with a device.  Opens on it the named device or the backend's default.  Each of several
 * ranks opens the next device, in turn; *sharers is set to how many open the same one. */
static enum gt_status backend_open(const struct config *config, struct backend **out,
                                   int32_t *sharers)
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
    struct backend_open_options options = {
        .name = device.name,
        .device = first + config->local_rank % cards,
        .threads = (int32_t)config->threads,
        .tf32 = config->tf32,
        .half_sums = config->half_sums != CONFIG_HALF_SUMS_OFF,
        .half_sums_anywhere = config->half_sums == CONFIG_HALF_SUMS_ON,
        .no_graphs = config->cuda_graphs == CONFIG_CUDA_GRAPHS_OFF,
        .tune = config->tune};
    return ops->open(&options, out);
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
    enum gt_status status = session_device_resolve(out, total, free_bytes);
    if (status == GT_OK && out->device.info.host_memory && system_memory_space_is_limit())
        log_note("ulimit -v limits the memory of this process to %s",
                 LOG_BYTES(out->device.info.total_bytes));
    if (status != GT_OK)
        session_close(out);
    return status;
}
