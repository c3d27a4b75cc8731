/* dropout: one work-item per eight elements that share a block of random numbers; see kernels/dropout.cl.
 *
 * The threshold and the scale come from op.h, so masks are the same in every backend.
 */
#include "backends/opencl/opencl_kernels.h"

static enum gt_status dropout_run(struct backend *backend, int32_t queue, const struct op_call *call)
{
    struct opencl_launch launch;
    const int64_t sample_elements = call->attrs.time * call->operand[DROPOUT_X].dims[1];
    const int64_t samples = op_elements(call, DROPOUT_X) / sample_elements;
    (void)queue;
    opencl_group_begin(&launch, backend, &opencl_source_dropout, "gt_dropout");
    opencl_arg_tensor(&launch, call, DROPOUT_X);
    opencl_arg_operand(&launch, call, DROPOUT_SCALARS);
    opencl_arg_tensor(&launch, call, DROPOUT_Y);
    opencl_arg_i32(&launch, call->attrs.site);
    opencl_arg_u32(&launch, dropout_threshold(call->attrs.dropout));
    opencl_arg_f32(&launch, dropout_scale(call->attrs.dropout));
    opencl_arg_i64(&launch, sample_elements);
    return opencl_run_columns(&launch, (sample_elements + 7) / 8, samples, 0.0);
}

const struct op_impl opencl_dropout = {.supports = opencl_floats_supported, .run = dropout_run};
