/* layernorm_forward and layernorm_backward: one group per row, and sums over rows in parts; see kernels/layernorm.cl.
 *
 * The backward workspace contains the parts' sums of dgain, [parts, C] floats, followed by those of dbias.
 */
#include "backends/opencl/opencl_kernels.h"

#define FLOPS_PER_ELEMENT 10.0

static double flops_of(int64_t rows, int64_t channels)
{
    return FLOPS_PER_ELEMENT * (double)rows * (double)channels;
}

static enum gt_status layernorm_forward_run(struct backend *backend, int32_t queue, const struct op_call *call)
{
    struct opencl_launch launch;
    const int64_t *dims = call->operand[LAYERNORM_FORWARD_X].dims;
    (void)queue;
    opencl_group_begin(&launch, backend, &opencl_source_layernorm, "gt_layernorm_forward");
    opencl_arg_tensor(&launch, call, LAYERNORM_FORWARD_X);
    opencl_arg_tensor(&launch, call, LAYERNORM_FORWARD_GAIN);
    opencl_arg_tensor(&launch, call, LAYERNORM_FORWARD_BIAS);
    opencl_arg_tensor(&launch, call, LAYERNORM_FORWARD_Y);
    opencl_arg_operand(&launch, call, LAYERNORM_FORWARD_MEAN);
    opencl_arg_operand(&launch, call, LAYERNORM_FORWARD_RSTD);
    opencl_arg_f32(&launch, call->attrs.epsilon);
    opencl_arg_i64(&launch, dims[1]);
    return opencl_run_groups(&launch, dims[0], flops_of(dims[0], dims[1]));
}

static size_t strip_bytes(const struct op_call *call)
{
    const int64_t *dims = call->operand[LAYERNORM_BACKWARD_X].dims;
    return (size_t)opencl_parts_of(dims[0]).parts * (size_t)dims[1] * sizeof(float);
}

static size_t layernorm_backward_workspace_bytes(const struct backend *backend, const struct op_call *call)
{
    (void)backend;
    return 2 * strip_bytes(call);
}

static enum gt_status rows_run(struct backend *backend, const struct op_call *call)
{
    struct opencl_launch launch;
    const int64_t *dims = call->operand[LAYERNORM_BACKWARD_X].dims;
    opencl_group_begin(&launch, backend, &opencl_source_layernorm, "gt_layernorm_backward");
    opencl_arg_tensor(&launch, call, LAYERNORM_BACKWARD_DY);
    opencl_arg_tensor(&launch, call, LAYERNORM_BACKWARD_X);
    opencl_arg_tensor(&launch, call, LAYERNORM_BACKWARD_GAIN);
    opencl_arg_operand(&launch, call, LAYERNORM_BACKWARD_MEAN);
    opencl_arg_operand(&launch, call, LAYERNORM_BACKWARD_RSTD);
    opencl_arg_tensor(&launch, call, LAYERNORM_BACKWARD_DX);
    opencl_arg_i32(&launch, op_accumulates(call, LAYERNORM_BACKWARD_DX));
    opencl_arg_i64(&launch, dims[1]);
    return opencl_run_groups(&launch, dims[0], flops_of(dims[0], dims[1]));
}

static enum gt_status partial_run(struct backend *backend, const struct op_call *call, struct opencl_parts parts)
{
    struct opencl_launch launch;
    const int64_t channels = call->operand[LAYERNORM_BACKWARD_X].dims[1];
    opencl_group_begin(&launch, backend, &opencl_source_layernorm, "gt_layernorm_backward_partial");
    opencl_arg_tensor(&launch, call, LAYERNORM_BACKWARD_DY);
    opencl_arg_tensor(&launch, call, LAYERNORM_BACKWARD_X);
    opencl_arg_operand(&launch, call, LAYERNORM_BACKWARD_MEAN);
    opencl_arg_operand(&launch, call, LAYERNORM_BACKWARD_RSTD);
    opencl_arg_workspace(&launch, call, 0, sizeof(float));
    opencl_arg_i64(&launch, parts.rows);
    opencl_arg_i64(&launch, parts.part_rows);
    opencl_arg_i64(&launch, parts.parts);
    opencl_arg_i64(&launch, channels);
    return opencl_run_columns(&launch, channels, parts.parts, flops_of(parts.rows, channels));
}

/* dx comes last: it may be the same memory as dy, which the sums over rows read. */
static enum gt_status layernorm_backward_run(struct backend *backend, int32_t queue, const struct op_call *call)
{
    const struct opencl_parts parts = opencl_parts_of(call->operand[LAYERNORM_BACKWARD_X].dims[0]);
    (void)queue;
    TRY(partial_run(backend, call, parts));
    TRY(opencl_run_parts_sum(backend, call, 0, parts.parts, LAYERNORM_BACKWARD_DGAIN));
    if (call->operand[LAYERNORM_BACKWARD_DBIAS].present)
        TRY(opencl_run_parts_sum(backend, call, strip_bytes(call), parts.parts, LAYERNORM_BACKWARD_DBIAS));
    return rows_run(backend, call);
}

const struct op_impl opencl_layernorm_forward = {.supports = opencl_floats_supported, .run = layernorm_forward_run};
const struct op_impl opencl_layernorm_backward = {
    .supports = opencl_floats_supported,
    .workspace_bytes = layernorm_backward_workspace_bytes,
    .run = layernorm_backward_run,
};
