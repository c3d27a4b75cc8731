/* residual: r = x + y, one work-item per element; see kernels/residual.cl.
 *
 * r may be the same memory as x or y; there is no workspace.
 */
#include "backends/opencl/opencl_kernels.h"

static enum gt_status residual_run(struct backend *backend, int32_t queue, const struct op_call *call)
{
    struct opencl_launch launch;
    const int64_t count = op_elements(call, RESIDUAL_R);
    (void)queue;
    opencl_group_begin(&launch, backend, &opencl_source_residual, "gt_residual");
    opencl_arg_tensor(&launch, call, RESIDUAL_X);
    opencl_arg_tensor(&launch, call, RESIDUAL_Y);
    opencl_arg_tensor(&launch, call, RESIDUAL_R);
    opencl_arg_i64(&launch, count);
    return opencl_run_elements(&launch, count);
}

const struct op_impl opencl_residual = {.supports = opencl_floats_supported, .run = residual_run};
