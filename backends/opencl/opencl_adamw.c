/* adamw: one work-item per element; see kernels/adamw.cl.
 *
 * opencl_arg_adamw() passes the arguments that it shares with adamw_lean.
 */
#include "backends/opencl/opencl_kernels.h"

static enum gt_status adamw_run(struct backend *backend, int32_t queue, const struct op_call *call)
{
    struct opencl_launch launch;
    const int64_t count = op_elements(call, ADAMW_PARAM);
    (void)queue;
    opencl_group_begin(&launch, backend, &opencl_source_adamw, "gt_adamw");
    opencl_arg_tensor(&launch, call, ADAMW_GRAD);
    opencl_arg_operand(&launch, call, ADAMW_SCALARS);
    opencl_arg_operand(&launch, call, ADAMW_CORRECTIONS);
    opencl_arg_tensor(&launch, call, ADAMW_PARAM);
    opencl_arg_tensor(&launch, call, ADAMW_MASTER);
    opencl_arg_tensor(&launch, call, ADAMW_M);
    opencl_arg_tensor(&launch, call, ADAMW_V);
    opencl_arg_adamw(&launch, call, ADAMW_CORRECTIONS);
    opencl_arg_i64(&launch, count);
    return opencl_run_elements(&launch, count);
}

const struct op_impl opencl_adamw = {.supports = opencl_floats_supported, .run = adamw_run};
