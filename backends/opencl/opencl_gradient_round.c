/* gradient_round: one group per block of STATE_BLOCK elements; see kernels/gradient_round.cl.
 *
 * Not supported on devices without subnormals, because the op is defined bit for bit.
 */
#include "backends/opencl/opencl_kernels.h"

static enum gt_status gradient_round_run(struct backend *backend, int32_t queue, const struct op_call *call)
{
    struct opencl_launch launch;
    const int64_t count = op_elements(call, GRADIENT_ROUND_Y);
    (void)queue;
    opencl_group_begin(&launch, backend, &opencl_source_gradient_round, "gt_gradient_round");
    opencl_arg_operand(&launch, call, GRADIENT_ROUND_X);
    opencl_arg_operand(&launch, call, GRADIENT_ROUND_SCALARS);
    opencl_arg_operand(&launch, call, GRADIENT_ROUND_Y);
    opencl_arg_i32(&launch, op_accumulates(call, GRADIENT_ROUND_Y));
    opencl_arg_i64(&launch, call->attrs.index_base);
    opencl_arg_i64(&launch, count);
    return opencl_run_groups(&launch, state_blocks(count), 0.0);
}

const struct op_impl opencl_gradient_round = {.supports = opencl_exact_supported, .run = gradient_round_run};
