/* Host side of gelu_forward and gelu_backward: operands, and the launch of one elementwise kernel.
 *
 * No workspace.  y may be x, and dx may be dy or x: a thread reads its group before it writes it.
 */
#include "backends/cuda/cuda_gelu.h"

#include "backends/cuda/cuda.h"

static enum gt_status forward_run(struct backend *backend, int32_t queue, const struct op_call *call)
{
    const struct cuda_gelu_args args = {
        .x = cuda_floats_of(backend, call, GELU_FORWARD_X),
        .out = cuda_floats_of(backend, call, GELU_FORWARD_Y),
        .kind = call->attrs.gelu,
        .walk = cuda_walk_of(backend, call, GELU_FORWARD_X),
    };
    return cuda_check(backend, cuda_launch_gelu_forward(cuda_stream(backend, queue), &args), "gelu_forward");
}

static enum gt_status backward_run(struct backend *backend, int32_t queue, const struct op_call *call)
{
    const struct cuda_gelu_args args = {
        .dy = cuda_floats_of(backend, call, GELU_BACKWARD_DY),
        .x = cuda_floats_of(backend, call, GELU_BACKWARD_X),
        .out = cuda_floats_of(backend, call, GELU_BACKWARD_DX),
        .kind = call->attrs.gelu,
        .walk = cuda_walk_of(backend, call, GELU_BACKWARD_X),
    };
    return cuda_check(backend, cuda_launch_gelu_backward(cuda_stream(backend, queue), &args), "gelu_backward");
}

const struct op_impl cuda_gelu_forward = {.supports = cuda_operands_supported, .run = forward_run};
const struct op_impl cuda_gelu_backward = {.supports = cuda_operands_supported, .run = backward_run};
