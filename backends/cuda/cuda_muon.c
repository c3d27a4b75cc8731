/* Host side of muon_momentum, muon_normalize and muon_step: operands, and the launch of one elementwise kernel each.
 *
 * No workspace.  The products between them are computed by gemm and blend.
 */
#include "backends/cuda/cuda_muon.h"

#include "backends/cuda/cuda.h"

static enum gt_status momentum_run(struct backend *backend, int32_t queue, const struct op_call *call)
{
    const struct cuda_muon_momentum_args args = {
        .grad = cuda_floats_of(backend, call, MUON_MOMENTUM_GRAD),
        .momentum = cuda_floats_of(backend, call, MUON_MOMENTUM_M),
        .ahead = cuda_floats_of(backend, call, MUON_MOMENTUM_U),
        .scalars = cuda_operand(backend, call, MUON_MOMENTUM_SCALARS),
        .beta = call->attrs.beta1,
        .index_base = call->attrs.index_base,
        .walk = cuda_walk_of(backend, call, MUON_MOMENTUM_U),
    };
    return cuda_check(backend, cuda_launch_muon_momentum(cuda_stream(backend, queue), &args), "muon_momentum");
}

static enum gt_status normalize_run(struct backend *backend, int32_t queue, const struct op_call *call)
{
    const struct cuda_muon_normalize_args args = {
        .x = cuda_floats_of(backend, call, MUON_NORMALIZE_X),
        .y = cuda_floats_of(backend, call, MUON_NORMALIZE_Y),
        .sum = cuda_operand(backend, call, MUON_NORMALIZE_SUM),
        .walk = cuda_walk_of(backend, call, MUON_NORMALIZE_Y),
    };
    return cuda_check(backend, cuda_launch_muon_normalize(cuda_stream(backend, queue), &args), "muon_normalize");
}

static enum gt_status step_run(struct backend *backend, int32_t queue, const struct op_call *call)
{
    const struct cuda_muon_step_args args = {
        .direction = cuda_floats_of(backend, call, MUON_STEP_O),
        .param = cuda_floats_of(backend, call, MUON_STEP_PARAM),
        .master = cuda_floats_of(backend, call, MUON_STEP_MASTER),
        .scalars = cuda_operand(backend, call, MUON_STEP_SCALARS),
        .alpha = call->attrs.alpha,
        .scale = call->attrs.value,
        .weight_decay = call->attrs.weight_decay,
        .index_base = call->attrs.index_base,
        .walk = cuda_walk_of(backend, call, MUON_STEP_PARAM),
    };
    return cuda_check(backend, cuda_launch_muon_step(cuda_stream(backend, queue), &args), "muon_step");
}

const struct op_impl cuda_muon_momentum = {.supports = cuda_operands_converted, .run = momentum_run};
const struct op_impl cuda_muon_normalize = {.supports = cuda_operands_converted, .run = normalize_run};
const struct op_impl cuda_muon_step = {.supports = cuda_operands_converted, .run = step_run};
