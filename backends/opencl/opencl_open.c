/* Opens a device in this process, and releases it.
 *
 * The backend opens a device in a child process first (opencl_child.c), then here; both call
 * opencl_open_here().
 */
#include "backends/opencl/opencl_open.h"

#include "backends/opencl/opencl_clblast.h"
#include "backends/opencl/opencl_device.h"
#include "backends/opencl/opencl_error.h"
#include "backends/opencl/opencl_memory.h"
#include "backends/opencl/opencl_program.h"
#include "backends/opencl/opencl_tune.h"
#include "base/system_memory.h"

/* A dispatch may take this long by a cautious estimate of the device's speed; desktop watchdogs
 * kill it after 2 s. */
#define DISPATCH_SECONDS 0.1
/* A unit can do 128 and more; memory-bound kernels reach a tenth of that. */
#define FLOPS_PER_UNIT_CLOCK 8.0
#define FLOPS_PER_NARROW_UNIT_CLOCK 1.0 /* a narrow unit can do 16 */

/* Returns 0, for no limit, on CPUs.  GPT_TRAIN_OPENCL_DISPATCH sets another number, for tests. */
static double dispatch_flops(const struct opencl_device *device)
{
    const char *wanted = getenv("GPT_TRAIN_OPENCL_DISPATCH");
    if (wanted != NULL)
        return strtod(wanted, NULL);
    const double clocks = 1e6 * (double)(device->clock_mhz > 0 ? device->clock_mhz : 1000);
    const double flops =
        device->has_narrow_units ? FLOPS_PER_NARROW_UNIT_CLOCK : FLOPS_PER_UNIT_CLOCK;
    return device->is_cpu ? 0.0 : DISPATCH_SECONDS * flops * clocks * (double)device->compute_units;
}

static enum gt_status device_begin(struct opencl_backend *cl, int32_t index, const char *name)
{
    TRY(opencl_api_open(&cl->api));
    TRY(opencl_device_find(&cl->api, index, name, &cl->device));
    cl->dispatch_flops = dispatch_flops(&cl->device);
    const cl_context_properties properties[] = {CL_CONTEXT_PLATFORM,
                                                (cl_context_properties)cl->device.platform, 0};
    cl_int code = CL_SUCCESS;
    cl->context = cl->api.clCreateContext(properties, 1, &cl->device.id, NULL, NULL, &code);
    CL_TRY(cl, "clCreateContext", code);
    cl->queue = cl->api.clCreateCommandQueue(cl->context, cl->device.id, 0, &code);
    CL_TRY(cl, "clCreateCommandQueue", code);
    cl->async[QUEUE_IN] = cl->async[QUEUE_OUT] = cl->queue;
    opencl_clblast_open(cl);
    opencl_tuning_load(cl);
    return GT_OK;
}

void opencl_copies_release(struct opencl_backend *cl)
{
    for (struct opencl_copy *copy = cl->copy; copy < cl->copy + OPENCL_COPIES_MAX; copy++) {
        if (copy->call != NULL)
            (void)cl->api.clReleaseEvent(copy->done);
        copy->call = NULL;
    }
}

void opencl_release(struct opencl_backend *cl)
{
    if (cl->queue != NULL)
        (void)cl->api.clFinish(cl->queue);
    opencl_clblast_close(cl);
    opencl_programs_release(cl);
    opencl_memory_release(cl);
    opencl_copies_release(cl);
    for (int i = QUEUE_IN; i <= QUEUE_OUT; i++)
        if (cl->async[i] != cl->queue)
            (void)cl->api.clReleaseCommandQueue(cl->async[i]);
    if (cl->queue != NULL)
        (void)cl->api.clReleaseCommandQueue(cl->queue);
    if (cl->context != NULL)
        (void)cl->api.clReleaseContext(cl->context);
    free(cl);
}

enum gt_status opencl_open_here(int32_t index, const char *name, struct backend **out)
{
    const size_t rss_bytes = process_rss_bytes();
    struct opencl_backend *cl = calloc(1, sizeof *cl);
    if (cl == NULL)
        return FAIL(GT_NO_MEMORY, "opencl: no memory for %zu B", sizeof *cl);
    cl->base.ops = &opencl_backend_ops;
    const enum gt_status status = device_begin(cl, index, name);
    if (status != GT_OK) {
        opencl_release(cl);
        return status;
    }
    const size_t now_bytes = process_rss_bytes();
    cl->context_bytes = cl->device.is_cpu && now_bytes > rss_bytes ? now_bytes - rss_bytes : 0;
    *out = &cl->base;
    return GT_OK;
}
