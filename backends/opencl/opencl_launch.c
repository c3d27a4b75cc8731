/* Arguments and launches of kernels on the one queue.
 *
 * A launch that would keep a slow card busy for longer than a watchdog allows is split along its last dimension into
 * dispatches with a global offset.  Nothing waits here: the next sync reports errors that a driver finds later.
 */
#include "backends/opencl/opencl_launch.h"

#include <stdio.h>

#include "backends/opencl/opencl_program.h"
#include "backends/opencl/opencl_shadow.h"
#include "base/log.h"

void opencl_launch_begin(struct opencl_launch *launch, struct backend *backend, const struct opencl_source *source,
                         const char *options, const char *kernel)
{
    *launch = (struct opencl_launch){.cl = opencl_own(backend), .name = kernel};
    launch->status =
        launch->cl->is_lost ? GT_DEVICE : opencl_kernel_find(launch->cl, source, options, kernel, &launch->kernel);
}

static void arg_set(struct opencl_launch *launch, size_t size, const void *value)
{
    if (launch->status != GT_OK)
        return;
    const cl_int code = launch->cl->api.clSetKernelArg(launch->kernel, launch->args, size, value);
    if (code != CL_SUCCESS) {
        char text[OPENCL_CODE_TEXT_MAX];
        opencl_error(launch->cl, "%s on %s: argument %u of %zu B: %s", launch->name, launch->cl->device.name,
                     launch->args, size, opencl_code_text(text, code));
        launch->status = GT_DEVICE;
    }
    launch->args++;
}

void opencl_arg_memory(struct opencl_launch *launch, cl_mem memory, uint64_t first_element)
{
    const cl_ulong at = first_element;
    arg_set(launch, sizeof(cl_mem), &memory);
    arg_set(launch, sizeof at, &at);
}

/* Passes an address of `bytes` bytes, which is a whole number of elements from the start of its memory object. */
static void arg_address(struct opencl_launch *launch, struct address at, size_t bytes, size_t element_bytes)
{
    const struct opencl_backend *cl = launch->cl;
    struct opencl_place place = {.offset_bytes = at.offset_bytes};
    assert(at.segment < cl->segments && at.space == cl->segment[at.segment].space);
    assert(at.offset_bytes % element_bytes == 0);
    assert(at.offset_bytes + bytes <= cl->segment[at.segment].size_bytes);
    place.memory = cl->segment[at.segment].memory;
    if (cl->shadow != NULL && !cl->is_dry)
        place = opencl_shadow_place(cl->shadow, at, bytes);
    opencl_arg_memory(launch, place.memory, place.offset_bytes / element_bytes);
}

void opencl_arg_operand(struct opencl_launch *launch, const struct op_call *call, int32_t slot)
{
    const struct operand *operand = &call->operand[slot];
    if (!operand->present || operand_elements(operand) == 0)
        opencl_arg_memory(launch, NULL, 0);
    else
        arg_address(launch, operand->at, operand_bytes(operand), dtype_size_bytes(operand->dtype));
}

void opencl_arg_workspace(struct opencl_launch *launch, const struct op_call *call, size_t first_bytes,
                          size_t element_bytes)
{
    assert(first_bytes <= call->workspace_bytes);
    struct address at = call->workspace;
    at.offset_bytes += first_bytes;
    if (call->workspace_bytes == 0)
        opencl_arg_memory(launch, NULL, 0);
    else
        arg_address(launch, at, call->workspace_bytes - first_bytes, element_bytes);
}

void opencl_arg_i32(struct opencl_launch *launch, int32_t value)
{
    const cl_int argument = value;
    arg_set(launch, sizeof argument, &argument);
}

void opencl_arg_u32(struct opencl_launch *launch, uint32_t value)
{
    const cl_uint argument = value;
    arg_set(launch, sizeof argument, &argument);
}

void opencl_arg_i64(struct opencl_launch *launch, int64_t value)
{
    const cl_long argument = value;
    arg_set(launch, sizeof argument, &argument);
}

void opencl_arg_f32(struct opencl_launch *launch, float value)
{
    const cl_float argument = value;
    arg_set(launch, sizeof argument, &argument);
}

/* Returns the groups of the last dimension per dispatch: all of them, or as many as the time limit allows, and at most
 * 2^32 - 1 work-items, because ROCm refuses more. */
static size_t groups_per_dispatch(const struct opencl_backend *cl, const struct opencl_range *range)
{
    const cl_uint last = range->dims - 1;
    size_t groups = range->global[last] / range->local[last], items = range->local[last];
    for (cl_uint d = 0; d < last; d++)
        items *= range->global[d];
    if (groups > UINT32_MAX / items)
        groups = items > UINT32_MAX / 2 ? 1 : UINT32_MAX / items;
    if (!(cl->dispatch_flops > 0.0) || range->flops <= cl->dispatch_flops)
        return groups;
    const double part = cl->dispatch_flops / range->flops * (double)(range->global[last] / range->local[last]);
    return part < 1.0 ? 1 : (part < (double)groups ? (size_t)part : groups);
}

static enum gt_status launch_failed(struct opencl_launch *launch, const struct opencl_range *range, cl_int code)
{
    char what[2 * OPENCL_NAME_MAX];
    snprintf(what, sizeof what, "%s (%zu x %zu x %zu in groups of %zu x %zu x %zu)", launch->name, range->global[0],
             range->global[1], range->global[2], range->local[0], range->local[1], range->local[2]);
    launch->status = opencl_failure(launch->cl, what, code);
    return launch->status;
}

enum gt_status opencl_launch_run(struct opencl_launch *launch, struct opencl_range range)
{
    assert(range.dims >= 1 && range.dims <= 3);
    if (launch->status != GT_OK)
        return launch->status;
    struct opencl_backend *cl = launch->cl;
    if (cl->is_dry)
        return GT_OK;
    const cl_uint last = range.dims - 1;
    for (cl_uint d = 0; d < range.dims; d++)
        assert(range.local[d] > 0 && range.global[d] > 0 && range.global[d] % range.local[d] == 0);
    const size_t step = groups_per_dispatch(cl, &range) * range.local[last];
    for (size_t first = 0; first < range.global[last]; first += step) {
        size_t offset[3] = {0, 0, 0}, global[3] = {range.global[0], range.global[1], range.global[2]};
        offset[last] = first;
        global[last] = first + step < range.global[last] ? step : range.global[last] - first;
        const cl_int code = cl->api.clEnqueueNDRangeKernel(cl->queue, launch->kernel, range.dims, offset, global,
                                                           range.local, 0, NULL, NULL);
        if (code != CL_SUCCESS)
            return launch_failed(launch, &range, code);
        if (step < range.global[last])
            CL_TRY(cl, launch->name, cl->api.clFlush(cl->queue));
    }
    return GT_OK;
}
