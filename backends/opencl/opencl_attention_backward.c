/* attention_backward: delta, then dk and dv by tiles of keys, then dq by tiles of queries; see
 * kernels/attention_backward.cl.
 *
 * The workspace contains delta, one float per row and head.  dq needs none, because each of its elements has one owner.
 */
#include "backends/opencl/opencl_attention.h"

static bool attention_backward_supports(const struct backend *backend, const struct op_call *call)
{
    return opencl_attention_fits(backend, call, ATTENTION_BACKWARD_QKV);
}

static size_t attention_backward_workspace_bytes(const struct backend *backend, const struct op_call *call)
{
    (void)backend;
    return (size_t)op_elements(call, ATTENTION_BACKWARD_LSE) * sizeof(float);
}

static enum gt_status delta_run(struct backend *backend, const struct op_call *call,
                                const struct opencl_attention_shape *shape)
{
    struct opencl_launch launch;
    opencl_launch_begin(&launch, backend, &opencl_source_attention_backward, shape->options, "gt_attention_delta");
    opencl_arg_tensor(&launch, call, ATTENTION_BACKWARD_DY);
    opencl_arg_tensor(&launch, call, ATTENTION_BACKWARD_Y);
    opencl_arg_workspace(&launch, call, 0, sizeof(float));
    opencl_arg_i32(&launch, (int32_t)shape->time);
    opencl_arg_i32(&launch, (int32_t)shape->heads);
    opencl_arg_i32(&launch, (int32_t)shape->head_size);
    return opencl_run_columns(&launch, shape->heads, shape->samples * shape->time, 0.0);
}

/* Launches `groups` groups of the kernel `name`, one per tile. */
static enum gt_status tiles_run(struct backend *backend, const struct op_call *call,
                                const struct opencl_attention_shape *shape, const char *name, int64_t groups)
{
    struct opencl_launch launch;
    const struct op_attrs *attrs = &call->attrs;
    opencl_launch_begin(&launch, backend, &opencl_source_attention_backward, shape->options, name);
    opencl_arg_tensor(&launch, call, ATTENTION_BACKWARD_DY);
    opencl_arg_tensor(&launch, call, ATTENTION_BACKWARD_QKV);
    opencl_arg_operand(&launch, call, ATTENTION_BACKWARD_LSE);
    opencl_arg_operand(&launch, call, ATTENTION_BACKWARD_SCALARS);
    opencl_arg_tensor(&launch, call, ATTENTION_BACKWARD_DQKV);
    opencl_arg_workspace(&launch, call, 0, sizeof(float));
    opencl_arg_i32(&launch, (int32_t)shape->time);
    opencl_arg_i32(&launch, (int32_t)shape->heads);
    opencl_arg_i32(&launch, (int32_t)shape->kv_heads);
    opencl_arg_i32(&launch, (int32_t)shape->head_size);
    opencl_arg_f32(&launch, attrs->softmax_scale);
    opencl_arg_i32(&launch, attrs->site);
    opencl_arg_u32(&launch, dropout_threshold(attrs->dropout));
    opencl_arg_f32(&launch, dropout_scale(attrs->dropout));
    const double squares = (double)shape->samples * (double)shape->heads * (double)shape->time * (double)shape->time;
    return opencl_attention_launch(&launch, groups, 4.0 * squares * (double)shape->head_size);
}

static enum gt_status attention_backward_run(struct backend *backend, int32_t queue, const struct op_call *call)
{
    const struct opencl_attention_shape shape = opencl_attention_shape_of(call, ATTENTION_BACKWARD_QKV);
    const int64_t wide = shape.narrow ? 32 : 16; /* GT_WIDE */
    const int64_t tiles = shape.samples * ((shape.time + wide - 1) / wide);
    (void)queue;
    TRY(delta_run(backend, call, &shape));
    TRY(tiles_run(backend, call, &shape, "gt_attention_backward_keys", tiles * shape.kv_heads));
    return tiles_run(backend, call, &shape, "gt_attention_backward_queries", tiles * shape.heads);
}

const struct op_impl opencl_attention_backward = {
    .supports = attention_backward_supports,
    .workspace_bytes = attention_backward_workspace_bytes,
    .run = attention_backward_run,
};
