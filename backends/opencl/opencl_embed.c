/* embed_forward and embed_backward: one work-item per channel of a row; see kernels/embed.cl.
 *
 * Only the device knows the number of distinct ids in a micro-batch, so the backward pass is launched for the maximum.
 */
#include "backends/opencl/opencl_kernels.h"

static enum gt_status embed_forward_run(struct backend *backend, int32_t queue, const struct op_call *call)
{
    struct opencl_launch launch;
    const int64_t rows = call->operand[EMBED_FORWARD_Y].dims[0], channels = call->operand[EMBED_FORWARD_Y].dims[1];
    (void)queue;
    opencl_group_begin(&launch, backend, &opencl_source_embed, "gt_embed_forward");
    opencl_arg_operand(&launch, call, EMBED_FORWARD_IDS);
    opencl_arg_tensor(&launch, call, EMBED_FORWARD_WTE);
    opencl_arg_tensor(&launch, call, EMBED_FORWARD_WPE);
    opencl_arg_operand(&launch, call, EMBED_FORWARD_SCALARS);
    opencl_arg_tensor(&launch, call, EMBED_FORWARD_Y);
    opencl_arg_i32(&launch, call->attrs.time);
    opencl_arg_i64(&launch, channels);
    return opencl_run_columns(&launch, channels, rows, 0.0);
}

static enum gt_status tokens_run(struct backend *backend, const struct op_call *call, int64_t rows, int64_t channels)
{
    struct opencl_launch launch;
    const int64_t groups = min_i64(rows, call->operand[EMBED_BACKWARD_DWTE].dims[0]);
    opencl_group_begin(&launch, backend, &opencl_source_embed, "gt_embed_backward_tokens");
    opencl_arg_tensor(&launch, call, EMBED_BACKWARD_DY);
    opencl_arg_operand(&launch, call, EMBED_BACKWARD_IDS);
    opencl_arg_operand(&launch, call, EMBED_BACKWARD_ORDER);
    opencl_arg_operand(&launch, call, EMBED_BACKWARD_STARTS);
    opencl_arg_tensor(&launch, call, EMBED_BACKWARD_DWTE);
    opencl_arg_i64(&launch, channels);
    return opencl_run_columns(&launch, channels, groups, 0.0);
}

static enum gt_status positions_run(struct backend *backend, const struct op_call *call, int64_t rows, int64_t channels)
{
    struct opencl_launch launch;
    opencl_group_begin(&launch, backend, &opencl_source_embed, "gt_embed_backward_positions");
    opencl_arg_tensor(&launch, call, EMBED_BACKWARD_DY);
    opencl_arg_tensor(&launch, call, EMBED_BACKWARD_DWPE);
    opencl_arg_i32(&launch, call->attrs.time);
    opencl_arg_i32(&launch, op_accumulates(call, EMBED_BACKWARD_DWPE));
    opencl_arg_i64(&launch, rows / call->attrs.time);
    opencl_arg_i64(&launch, channels);
    return opencl_run_columns(&launch, channels, call->operand[EMBED_BACKWARD_DWPE].dims[0], 0.0);
}

static enum gt_status embed_backward_run(struct backend *backend, int32_t queue, const struct op_call *call)
{
    const int64_t rows = call->operand[EMBED_BACKWARD_DY].dims[0], channels = call->operand[EMBED_BACKWARD_DY].dims[1];
    (void)queue;
    TRY(tokens_run(backend, call, rows, channels));
    return positions_run(backend, call, rows, channels);
}

const struct op_impl opencl_embed_forward = {.supports = opencl_floats_supported, .run = embed_forward_run};
const struct op_impl opencl_embed_backward = {.supports = opencl_floats_supported, .run = embed_backward_run};
