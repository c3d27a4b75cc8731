/* gelu_forward and gelu_backward: one work-item per element; see kernels/gelu.cl.
 *
 * Each kernel computes both kinds of GELU; an argument selects one.  Results may replace an input.
 */
#include "backends/opencl/opencl_kernels.h"

static enum gt_status gelu_forward_run(struct backend *backend, int32_t queue, const struct op_call *call)
{
    struct opencl_launch launch;
    const int64_t count = op_elements(call, GELU_FORWARD_X);
    (void)queue;
    opencl_group_begin(&launch, backend, &opencl_source_gelu, "gt_gelu_forward");
    opencl_arg_tensor(&launch, call, GELU_FORWARD_X);
    opencl_arg_tensor(&launch, call, GELU_FORWARD_Y);
    opencl_arg_i32(&launch, (int32_t)call->attrs.gelu);
    opencl_arg_i64(&launch, count);
    return opencl_run_elements(&launch, count);
}

static enum gt_status gelu_backward_run(struct backend *backend, int32_t queue, const struct op_call *call)
{
    struct opencl_launch launch;
    const int64_t count = op_elements(call, GELU_BACKWARD_X);
    (void)queue;
    opencl_group_begin(&launch, backend, &opencl_source_gelu, "gt_gelu_backward");
    opencl_arg_tensor(&launch, call, GELU_BACKWARD_DY);
    opencl_arg_tensor(&launch, call, GELU_BACKWARD_X);
    opencl_arg_tensor(&launch, call, GELU_BACKWARD_DX);
    opencl_arg_i32(&launch, (int32_t)call->attrs.gelu);
    opencl_arg_i64(&launch, count);
    return opencl_run_elements(&launch, count);
}

const struct op_impl opencl_gelu_forward = {.supports = opencl_floats_supported, .run = gelu_forward_run};
const struct op_impl opencl_gelu_backward = {.supports = opencl_floats_supported, .run = gelu_backward_run};
