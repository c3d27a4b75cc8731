/* A device that is only planned for.
 *
 * info() tells the profile's figures, the table supports every op in every dtype that the profile has, and the workspaces
 * are the caps of the ops.  Whatever would need a device is refused, in one line that says why.
 */
#include "plan/profile_device.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"

struct profile_device {
    struct backend base; /* first */
    struct backend_ops ops;
    struct device_profile profile;
};

static const struct profile_device *device_of(const struct backend *backend)
{
    return (const struct profile_device *)(const void *)backend;
}

static enum gt_status refuse(const struct backend *backend, const char *what)
{
    log_error("%s is a device profile, which can be planned for but not %s", device_of(backend)->profile.id, what);
    return GT_UNSUPPORTED;
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

size_t profile_workspace_bytes(const struct backend *backend, const struct op_call *call)
{
    const struct op_declaration *declaration = op_declaration(call->kind);
    (void)backend;
    return declaration->workspace_cap ? declaration->workspace_cap(call) : 0;
}

static enum gt_status profile_op_run(struct backend *backend, int32_t queue, const struct op_call *call)
{
    (void)queue;
    (void)call;
    return refuse(backend, "computed on");
}

#define OP(KIND, name, ...) [OP_##KIND] = {profile_supports, profile_workspace_bytes, profile_op_run},
static const struct op_impl profile_table[OP_KIND_COUNT] = {
#include "ops/ops.def"
};
#undef OP

static void profile_devices(bool automatic, struct backend_devices *out)
{
    (void)automatic;
    *out = (struct backend_devices){.first = -1, .reason = "a device profile is made by profile_device_open()"};
}

static enum gt_status profile_open(const struct backend_open_options *options, struct backend **out)
{
    (void)options;
    (void)out;
    log_error("a device profile is made by profile_device_open(), not opened");
    return GT_UNSUPPORTED;
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

static enum gt_status profile_arena(struct backend *backend, const struct backend_segment *segments, int32_t count)
{
    (void)segments;
    (void)count;
    return refuse(backend, "given memory");
}

static enum gt_status profile_upload(struct backend *backend, int32_t queue, struct address to, const void *from,
                                     size_t bytes)
{
    (void)queue;
    (void)to;
    (void)from;
    (void)bytes;
    return refuse(backend, "written to");
}

static enum gt_status profile_download(struct backend *backend, int32_t queue, void *to, struct address from,
                                       size_t bytes)
{
    (void)queue;
    (void)to;
    (void)from;
    (void)bytes;
    return refuse(backend, "read from");
}

static enum gt_status profile_run(struct backend *backend, int32_t queue, const struct op_call *calls, size_t count)
{
    (void)queue;
    (void)calls;
    (void)count;
    return refuse(backend, "computed on");
}

static enum gt_status profile_sync(struct backend *backend, int32_t queue)
{
    (void)backend;
    (void)queue;
    return GT_OK; /* nothing is under way */
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
        .devices = profile_devices,
        .open = profile_open,
        .close = profile_close,
        .info = profile_info,
        .arena = profile_arena,
        .upload = profile_upload,
        .download = profile_download,
        .run = profile_run,
        .sync = profile_sync,
        .table = profile_table,
    };
    device->base.ops = &device->ops;
    *out = &device->base;
    return GT_OK;
}
