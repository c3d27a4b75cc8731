/* muon_momentum, muon_normalize, muon_step: by element, or by block if random bits are needed; see kernels/muon.cl.
 *
 * Not supported on devices without subnormals, because the ops are defined bit for bit.
 */
#include "backends/opencl/opencl_kernels.h"

static enum gt_status muon_momentum_run(struct backend *backend, int32_t queue, const struct op_call *call)
{
    struct opencl_launch launch;
    const int64_t count = op_elements(call, MUON_MOMENTUM_U);
    (void)queue;
    opencl_group_begin(&launch, backend, &opencl_source_muon, "gt_muon_momentum");
    opencl_arg_tensor(&launch, call, MUON_MOMENTUM_GRAD);
    opencl_arg_operand(&launch, call, MUON_MOMENTUM_SCALARS);
    opencl_arg_tensor(&launch, call, MUON_MOMENTUM_M);
    opencl_arg_operand(&launch, call, MUON_MOMENTUM_U);
    opencl_arg_f32(&launch, call->attrs.beta1);
    opencl_arg_f32(&launch, 1.0f - call->attrs.beta1);
    opencl_arg_i64(&launch, call->attrs.index_base);
    opencl_arg_i64(&launch, count);
    return opencl_run_groups(&launch, state_blocks(count), 0.0);
}

static enum gt_status muon_normalize_run(struct backend *backend, int32_t queue, const struct op_call *call)
{
    struct opencl_launch launch;
    const int64_t count = op_elements(call, MUON_NORMALIZE_Y);
    (void)queue;
    opencl_group_begin(&launch, backend, &opencl_source_muon, "gt_muon_normalize");
    opencl_arg_operand(&launch, call, MUON_NORMALIZE_X);
    opencl_arg_operand(&launch, call, MUON_NORMALIZE_SUM);
    opencl_arg_tensor(&launch, call, MUON_NORMALIZE_Y);
    opencl_arg_i64(&launch, count);
    return opencl_run_elements(&launch, count);
}

static enum gt_status muon_step_run(struct backend *backend, int32_t queue, const struct op_call *call)
{
    struct opencl_launch launch;
    const int64_t count = op_elements(call, MUON_STEP_PARAM);
    (void)queue;
    opencl_group_begin(&launch, backend, &opencl_source_muon, "gt_muon_step");
    opencl_arg_tensor(&launch, call, MUON_STEP_O);
    opencl_arg_operand(&launch, call, MUON_STEP_SCALARS);
    opencl_arg_tensor(&launch, call, MUON_STEP_PARAM);
    opencl_arg_tensor(&launch, call, MUON_STEP_MASTER);
    opencl_arg_f32(&launch, call->attrs.alpha);
    opencl_arg_f32(&launch, call->attrs.value);
    opencl_arg_f32(&launch, call->attrs.weight_decay);
    opencl_arg_i64(&launch, call->attrs.index_base);
    opencl_arg_i64(&launch, count);
    return opencl_run_groups(&launch, state_blocks(count), 0.0);
}

const struct op_impl opencl_muon_momentum = {.supports = opencl_exact_supported, .run = muon_momentum_run};
const struct op_impl opencl_muon_normalize = {.supports = opencl_exact_supported, .run = muon_normalize_run};
const struct op_impl opencl_muon_step = {.supports = opencl_exact_supported, .run = muon_step_run};
