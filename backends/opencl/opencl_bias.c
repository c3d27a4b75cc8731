/* bias_backward: the sum of the rows of dy; see kernels/bias.cl.
 *
 * Rows are summed in parts.  The workspace contains the parts' sums, [parts, columns] floats, which are then added in
 * order.
 */
#include "backends/opencl/opencl_kernels.h"

static size_t bias_backward_workspace_bytes(const struct backend *backend, const struct op_call *call)
{
    const int64_t *dims = call->operand[BIAS_BACKWARD_DY].dims;
    (void)backend;
    return (size_t)opencl_parts_of(dims[0]).parts * (size_t)dims[1] * sizeof(float);
}

static enum gt_status bias_backward_run(struct backend *backend, int32_t queue, const struct op_call *call)
{
    struct opencl_launch launch;
    const int64_t *dims = call->operand[BIAS_BACKWARD_DY].dims;
    const struct opencl_parts parts = opencl_parts_of(dims[0]);
    (void)queue;
    opencl_group_begin(&launch, backend, &opencl_source_bias, "gt_bias_backward_partial");
    opencl_arg_tensor(&launch, call, BIAS_BACKWARD_DY);
    opencl_arg_workspace(&launch, call, 0, sizeof(float));
    opencl_arg_i64(&launch, parts.rows);
    opencl_arg_i64(&launch, parts.part_rows);
    opencl_arg_i64(&launch, dims[1]);
    TRY(opencl_run_columns(&launch, dims[1], parts.parts, (double)dims[0] * (double)dims[1]));
    return opencl_run_parts_sum(backend, call, 0, parts.parts, BIAS_BACKWARD_DBIAS);
}

const struct op_impl opencl_bias_backward = {
    .supports = opencl_floats_supported,
    .workspace_bytes = bias_backward_workspace_bytes,
    .run = bias_backward_run,
};
