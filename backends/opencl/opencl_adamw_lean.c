/* adamw_lean: one group per block of STATE_BLOCK elements; see kernels/adamw_lean.cl.
 *
 * Not supported on devices without subnormals, because the op is defined bit for bit.
 */
#include "backends/opencl/opencl_kernels.h"

static enum gt_status adamw_lean_run(struct backend *backend, int32_t queue, const struct op_call *call)
{
    struct opencl_launch launch;
    const int64_t count = op_elements(call, ADAMW_LEAN_PARAM), blocks = state_blocks(count);
    (void)queue;
    opencl_group_begin(&launch, backend, &opencl_source_adamw_lean, "gt_adamw_lean");
    opencl_arg_tensor(&launch, call, ADAMW_LEAN_GRAD);
    opencl_arg_operand(&launch, call, ADAMW_LEAN_SCALARS);
    opencl_arg_operand(&launch, call, ADAMW_LEAN_CORRECTIONS);
    opencl_arg_operand(&launch, call, ADAMW_LEAN_PARAM);
    opencl_arg_tensor(&launch, call, ADAMW_LEAN_M);
    opencl_arg_tensor(&launch, call, ADAMW_LEAN_V);
    opencl_arg_operand(&launch, call, ADAMW_LEAN_SCALES);
    opencl_arg_adamw(&launch, call, ADAMW_LEAN_CORRECTIONS);
    opencl_arg_i64(&launch, call->attrs.index_base);
    opencl_arg_i64(&launch, blocks);
    opencl_arg_i64(&launch, count);
    return opencl_run_groups(&launch, blocks, 0.0);
}

const struct op_impl opencl_adamw_lean = {.supports = opencl_exact_supported, .run = adamw_lean_run};
