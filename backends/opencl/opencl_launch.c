/* Arguments and launches of kernels on the one queue.
 *
 * A launch that would keep a slow card busy for longer than a watchdog allows is split into
 * dispatches with a global offset.  Nothing waits here: the next sync reports errors that a driver
 * finds later.
 */
#include "backends/opencl/opencl_launch.h"

#include "backends/opencl/opencl_error.h"
#include "backends/opencl/opencl_program.h"

#define COLUMN_ITEMS 64 /* work-items per group in kernels whose columns are independent */

void opencl_launch_begin(struct opencl_launch *launch, struct opencl_backend *cl,
                         const struct opencl_source *source, const char *options,
                         const char *kernel)
{
    *launch = (struct opencl_launch){.cl = cl, .name = kernel};
    launch->status = launch->cl->is_lost
                         ? GT_DEVICE
                         : opencl_kernel_find(launch->cl, source, options, kernel, &launch->kernel);
}

static void arg_set(struct opencl_launch *launch, size_t size, const void *value)
{
    if (launch->status != GT_OK)
        return;
    const cl_int code = launch->cl->api.clSetKernelArg(launch->kernel, launch->args, size, value);
    if (code != CL_SUCCESS) {
        char text[OPENCL_CODE_TEXT_MAX];
        opencl_error(launch->cl, "%s on %s: argument %u of %zu B: %s", launch->name,
                     launch->cl->device.name, launch->args, size, opencl_code_text(text, code));
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

/* Passes the array of `bytes` bytes at an address, or NULL and 0 for none. */
static void arg_array(struct opencl_launch *launch, struct address at, size_t bytes,
                      size_t element_bytes)
{
    if (bytes == 0) {
        opencl_arg_memory(launch, NULL, 0);
        return;
    }
    assert(at.offset_bytes % element_bytes == 0);
    opencl_arg_memory(launch, opencl_segment_at(launch->cl, at, bytes)->memory,
                      at.offset_bytes / element_bytes);
}

static void arg_operand(struct opencl_launch *launch, const struct operand *operand)
{
    arg_array(launch, operand->at, operand->present ? operand_bytes(operand) : 0,
              dtype_size_bytes(operand->dtype));
}

void opencl_arg_tensor(struct opencl_launch *launch, const struct op_call *call, int32_t slot)
{
    const struct operand *operand = &call->operand[slot];
    const cl_int dtype = operand->present ? (cl_int)operand->dtype : -1;
    arg_operand(launch, operand);
    arg_set(launch, sizeof dtype, &dtype);
}

void opencl_arg_operands(struct opencl_launch *launch, const struct op_call *call,
                         const char *forms)
{
    int32_t slot = 0;
    for (const char *form = forms; *form != '\0'; form++) {
        if (*form == 't')
            opencl_arg_tensor(launch, call, slot);
        else if (*form == 'a')
            arg_operand(launch, &call->operand[slot]);
        else if (*form == 'w')
            arg_array(launch, call->workspace, call->workspace_bytes, sizeof(float));
        slot += *form != 'w';
    }
}

void opencl_arg_values(struct opencl_launch *launch, const struct opencl_value *values)
{
    for (; values->size > 0; values++)
        arg_set(launch, values->size, &values->as);
}

/* Returns the groups per dispatch: all of them, or as many as the time limit allows, and at most
 * 2^32 - 1 work-items, because ROCm refuses more. */
static size_t groups_per_dispatch(const struct opencl_backend *cl, size_t groups, size_t items,
                                  double flops)
{
    const size_t most = groups < UINT32_MAX / items ? groups : UINT32_MAX / items;
    if (!(cl->dispatch_flops > 0.0) || flops <= cl->dispatch_flops)
        return most;
    const double part = cl->dispatch_flops / flops * (double)groups;
    return part < 1.0 ? 1 : (part < (double)most ? (size_t)part : most);
}

enum gt_status opencl_launch_run(struct opencl_launch *launch, int64_t groups, size_t items,
                                 double flops)
{
    struct opencl_backend *cl = launch->cl;
    assert(groups > 0 && items > 0);
    if (launch->status != GT_OK || cl->is_dry)
        return launch->status;
    const size_t global = (size_t)groups * items,
                 step = groups_per_dispatch(cl, (size_t)groups, items, flops) * items;
    for (size_t first = 0; first < global; first += step) {
        const size_t part = first + step < global ? step : global - first;
        const cl_int code = cl->api.clEnqueueNDRangeKernel(cl->queue, launch->kernel, 1, &first,
                                                           &part, &items, 0, NULL, NULL);
        if (code != CL_SUCCESS) {
            char what[2 * OPENCL_NAME_MAX];
            snprintf(what, sizeof what, "%s (%zu in groups of %zu)", launch->name, global, items);
            return opencl_failure(cl, what, code);
        }
        if (step < global)
            CL_TRY(cl, launch->name, cl->api.clFlush(cl->queue));
    }
    return GT_OK;
}

enum gt_status opencl_launch_columns(struct opencl_launch *launch, int64_t columns, int64_t rows,
                                     double flops)
{
    const size_t items = launch->cl->device.work_group_max < COLUMN_ITEMS ? 1 : COLUMN_ITEMS;
    const int64_t groups = size_ceil_div(columns, (int64_t)items) * rows;
    assert(groups <= UINT32_MAX); /* gt_column() counts in 32 bits */
    return opencl_launch_run(launch, groups, items, flops);
}
