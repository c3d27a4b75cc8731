/* A backend for planning only.
 *
 * info() returns the profile's figures, supports() accepts every op in every dtype of the profile, and workspaces are
 * the ops' caps.  The functions that would need a device do not exist: nothing runs a plan for a profile.
 */
#include "plan/profile_device.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"

struct profile_device {
    struct backend base; /* must be first */
    struct backend_ops ops;
    struct device_profile profile;
};

static const struct profile_device *device_of(const struct backend *backend)
{
    return (const struct profile_device *)(const void *)backend;
}

static bool profile_supports(const struct backend *backend, const struct op_call *call)
{
    uint32_t dtypes = device_of(backend)->profile.dtypes;
    for (int32_t slot = 0; slot < op_declaration(call->kind)->operands; slot++) {
        const struct operand *operand = &call->operand[slot];
        bool matrix = operand->dtype == DTYPE_F32 || operand->dtype == DTYPE_BF16 || operand->dtype == DTYPE_F16;
        if (operand->present && (operand->dtype == DTYPE_F64 || (matrix && !(dtypes >> operand->dtype & 1u))))
            return false;
    }
    return true;
}

static size_t profile_workspace_bytes(const struct backend *backend, const struct op_call *call)
{
    const struct op_declaration *declaration = op_declaration(call->kind);
    (void)backend;
    return declaration->workspace_cap ? declaration->workspace_cap(call) : 0;
}

static void profile_close(struct backend *backend)
{
    free(backend);
}

static enum gt_status profile_info(struct backend *backend, struct backend_info *out)
{
    const struct device_profile *profile = &device_of(backend)->profile;
    struct backend_info info = {
        .total_bytes = profile->usable_bytes + profile->context_bytes,
        .free_bytes = profile->usable_bytes + profile->context_bytes,
        .context_bytes = profile->context_bytes,
        .largest_allocation_bytes = profile->largest_allocation_bytes,
        .alignment_bytes = profile->alignment_bytes,
        .dtypes = profile->dtypes,
    };
    snprintf(info.device, sizeof info.device, "%s (profile)", profile->name);
    snprintf(info.detail, sizeof info.detail, "planned for without the device");
    *out = info;
    return GT_OK;
}

enum gt_status profile_device_open(const struct device_profile *profile, struct backend **out)
{
    struct profile_device *device = calloc(1, sizeof *device);
    if (device == NULL) {
        log_error("no memory for %zu B of a device profile", sizeof *device);
        return GT_NO_MEMORY;
    }
    device->profile = *profile;
    device->ops = (struct backend_ops){
        .name = device->profile.backend,
        .close = profile_close,
        .info = profile_info,
        .supports = profile_supports,
        .workspace_bytes = profile_workspace_bytes,
    };
    device->base.ops = &device->ops;
    *out = &device->base;
    return GT_OK;
}
