/* Opens a backend and runs ops on it, through its interface only, with one arena for the largest case.
 *
 * The whole image is uploaded, one op runs, and the whole image is downloaded, so that every byte the op wrote is
 * checked.
 */
#include <stdio.h>

#include "tests/opcheck/opcheck.h"

bool device_open(const struct backend_ops *ops, size_t arena_bytes, struct device *out)
{
    struct backend_open_options options = {.device = 0, .threads = 0};
    struct backend_segment segment = {.space = SPACE_DEVICE, .size_bytes = arena_bytes};
    *out = (struct device){.ops = ops};
    if (ops->open(&options, &out->backend) != GT_OK)
        return false;
    if (ops->info(out->backend, &out->info) == GT_OK &&
        (arena_bytes == 0 || ops->arena(out->backend, &segment, 1) == GT_OK))
        return true;
    ops->close(out->backend);
    return false;
}

void device_close(struct device *device)
{
    device->ops->close(device->backend);
}

bool device_supports(const struct device *device, const struct op_call *call)
{
    return device->backend->ops->supports(device->backend, call);
}

void device_layout(const struct device *device, struct check_case *check)
{
    size_t workspace = device->backend->ops->workspace_bytes(device->backend, &check->call);
    image_layout(check, workspace, device->info.alignment_bytes);
}

bool device_run(struct device *device, const struct check_case *check, const uint8_t *before, uint8_t *after)
{
    const struct backend_ops *ops = device->backend->ops;
    struct address start = {.space = SPACE_DEVICE};
    return ops->upload(device->backend, 0, start, before, check->image_bytes) == GT_OK &&
           ops->run(device->backend, 0, &check->call, 1) == GT_OK && ops->sync(device->backend, 0) == GT_OK &&
           ops->download(device->backend, 0, after, start, check->image_bytes) == GT_OK;
}
