/* blend: y = alpha x + beta z, one work-item per element; see kernels/blend.cl.
 *
 * Not supported on devices without subnormals, because the op is defined bit for bit.
 */
#include "backends/opencl/opencl_kernels.h"

static enum gt_status blend_run(struct backend *backend, int32_t queue, const struct op_call *call)
{
    struct opencl_launch launch;
    const int64_t count = op_elements(call, BLEND_Y);
    (void)queue;
    opencl_group_begin(&launch, backend, &opencl_source_blend, "gt_blend");
    opencl_arg_tensor(&launch, call, BLEND_X);
    opencl_arg_tensor(&launch, call, BLEND_Z);
    opencl_arg_tensor(&launch, call, BLEND_Y);
    opencl_arg_f32(&launch, call->attrs.alpha);
    opencl_arg_f32(&launch, call->attrs.beta);
    opencl_arg_i64(&launch, count);
    return opencl_run_elements(&launch, count);
}

const struct op_impl opencl_blend = {.supports = opencl_exact_supported, .run = blend_run};
