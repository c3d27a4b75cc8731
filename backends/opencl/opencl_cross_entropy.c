/* cross_entropy: one group per row, in place; loss_sum: one group; see kernels/cross_entropy.cl.
 *
 * There is no workspace in any dtype: the kernel reads the logits twice instead.
 */
#include "backends/opencl/opencl_kernels.h"

#define FLOPS_PER_LOGIT 20.0 /* including exponentials */

static enum gt_status cross_entropy_run(struct backend *backend, int32_t queue, const struct op_call *call)
{
    struct opencl_launch launch;
    const int64_t *dims = call->operand[CROSS_ENTROPY_LOGITS].dims;
    (void)queue;
    opencl_group_begin(&launch, backend, &opencl_source_cross_entropy, "gt_cross_entropy");
    opencl_arg_operand(&launch, call, CROSS_ENTROPY_TARGETS);
    opencl_arg_operand(&launch, call, CROSS_ENTROPY_SCALARS);
    opencl_arg_tensor(&launch, call, CROSS_ENTROPY_LOGITS);
    opencl_arg_operand(&launch, call, CROSS_ENTROPY_LOSSES);
    opencl_arg_i32(&launch, call->attrs.gradient);
    opencl_arg_i64(&launch, call->attrs.vocab);
    opencl_arg_i64(&launch, dims[1]);
    return opencl_run_groups(&launch, dims[0], FLOPS_PER_LOGIT * (double)dims[0] * (double)dims[1]);
}

static enum gt_status loss_sum_run(struct backend *backend, int32_t queue, const struct op_call *call)
{
    struct opencl_launch launch;
    (void)queue;
    opencl_group_begin(&launch, backend, &opencl_source_cross_entropy, "gt_loss_sum");
    opencl_arg_operand(&launch, call, LOSS_SUM_LOSSES);
    opencl_arg_operand(&launch, call, LOSS_SUM_SCALARS);
    opencl_arg_i64(&launch, op_elements(call, LOSS_SUM_LOSSES));
    return opencl_run_groups(&launch, 1, 0.0);
}

const struct op_impl opencl_cross_entropy = {.supports = opencl_floats_supported, .run = cross_entropy_run};
const struct op_impl opencl_loss_sum = {.supports = opencl_floats_supported, .run = loss_sum_run};
