/* Opens a backend and runs ops on it, through its interface only, with one arena for the largest
 * case.
 *
 * The whole image is uploaded, one op runs, and the whole image is downloaded, so that every byte
 * the op wrote is checked.  A device that is separate has a segment for each operand of one case,
 * of exactly its size, and one for the workspace: for tools that report accesses beyond a segment.
 */
#include <stdio.h>
#include <string.h>

#include "tests/opcheck/opcheck.h"

/* Its segment; those of operands have the numbers of their slots. */
#define WORKSPACE OP_OPERANDS_MAX
#define REGIONS_MAX (WORKSPACE + 1)

/* A part of the image that one segment holds. */
struct region {
    size_t offset, bytes;
};

static int32_t regions_list(bool separate, const struct check_case *check,
                            struct region out[static REGIONS_MAX])
{
    const struct op_call *call = &check->call;
    out[0] = (struct region){0, check->image_bytes};
    for (int32_t slot = 0; slot < OP_OPERANDS_MAX && separate; slot++) {
        const struct operand *operand = &call->operand[slot];
        out[slot] = (struct region){operand->at.offset_bytes,
                                    operand->present ? operand_bytes(operand) : 0};
    }
    out[WORKSPACE] = (struct region){call->workspace.offset_bytes, call->workspace_bytes};
    return separate ? REGIONS_MAX : 1;
}

static bool arena_make(struct device *device, size_t arena_bytes, const struct check_case *separate)
{
    struct backend_segment segments[REGIONS_MAX] = {
        {.space = SPACE_DEVICE, .size_bytes = arena_bytes}};
    struct region regions[REGIONS_MAX];
    int32_t count = separate != NULL ? regions_list(true, separate, regions) : 1;
    for (int32_t i = 0; i < count && separate != NULL; i++)
        segments[i] =
            (struct backend_segment){.space = SPACE_DEVICE, .size_bytes = regions[i].bytes};
    return device->ops->arena(device->backend, segments, count) == GT_OK;
}

bool device_open(const struct backend_ops *ops, int32_t threads, size_t arena_bytes,
                 const struct check_case *separate, struct device *out)
{
    struct backend_open_options options = {.device = 0,
                                           .threads = threads,
                                           .half_sums = half_sums_allowed,
                                           .half_sums_anywhere = half_sums_allowed};
    *out = (struct device){.ops = ops, .is_separate = separate != NULL};
    if (ops->open(&options, &out->backend) != GT_OK)
        return false;
    out->ops = ops = out->backend->ops; /* a module has its own table */
    if (ops->info(out->backend, &out->info) == GT_OK &&
        (arena_bytes == 0 || arena_make(out, arena_bytes, separate)))
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

bool device_run(struct device *device, const struct check_case *check, const uint8_t *before,
                uint8_t *after)
{
    const struct backend_ops *ops = device->backend->ops;
    struct op_call call = check->call;
    struct region regions[REGIONS_MAX];
    int32_t count = regions_list(device->is_separate, check, regions);
    bool good = true;
    for (uint8_t slot = 0; slot < OP_OPERANDS_MAX && device->is_separate; slot++)
        call.operand[slot].at = (struct address){.space = SPACE_DEVICE, .segment = slot};
    if (device->is_separate)
        call.workspace = (struct address){.space = SPACE_DEVICE, .segment = WORKSPACE};
    memcpy(after, before, check->image_bytes);
    for (uint8_t i = 0; i < count; i++)
        good = good &&
               ops->upload(device->backend, (struct address){.space = SPACE_DEVICE, .segment = i},
                           before + regions[i].offset, regions[i].bytes) == GT_OK;
    good =
        good && ops->run(device->backend, &call, 1) == GT_OK && ops->sync(device->backend) == GT_OK;
    for (uint8_t i = 0; i < count; i++)
        good = good && ops->download(device->backend, after + regions[i].offset,
                                     (struct address){.space = SPACE_DEVICE, .segment = i},
                                     regions[i].bytes) == GT_OK;
    return good;
}
