/* fill and copy: one work-item per element; see kernels/fill_copy.cl.
 *
 * A copy rounds once, to the dtype of y; between equal dtypes it copies the bits.
 */
#include "backends/opencl/opencl_kernels.h"

static enum gt_status fill_run(struct backend *backend, int32_t queue, const struct op_call *call)
{
    struct opencl_launch launch;
    const int64_t count = op_elements(call, FILL_Y);
    (void)queue;
    opencl_group_begin(&launch, backend, &opencl_source_fill_copy, "gt_fill");
    opencl_arg_tensor(&launch, call, FILL_Y);
    opencl_arg_f32(&launch, call->attrs.value);
    opencl_arg_i64(&launch, count);
    return opencl_run_elements(&launch, count);
}

static enum gt_status copy_run(struct backend *backend, int32_t queue, const struct op_call *call)
{
    struct opencl_launch launch;
    const int64_t count = op_elements(call, COPY_X);
    (void)queue;
    opencl_group_begin(&launch, backend, &opencl_source_fill_copy, "gt_copy");
    opencl_arg_tensor(&launch, call, COPY_X);
    opencl_arg_tensor(&launch, call, COPY_Y);
    opencl_arg_i32(&launch, op_accumulates(call, COPY_Y));
    opencl_arg_i64(&launch, count);
    return opencl_run_elements(&launch, count);
}

const struct op_impl opencl_fill = {.supports = opencl_floats_supported, .run = fill_run};
const struct op_impl opencl_copy = {.supports = opencl_floats_supported, .run = copy_run};
