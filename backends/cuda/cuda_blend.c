/* Host side of blend: operands, and the launch of one elementwise kernel.
 *
 * No workspace.  y may be x or z: a thread reads its group before it writes it.
 */
#include "backends/cuda/cuda_blend.h"

#include "backends/cuda/cuda.h"

static enum gt_status blend_run(struct backend *backend, int32_t queue, const struct op_call *call)
{
    const struct cuda_blend_args args = {
        .x = cuda_floats_of(backend, call, BLEND_X),
        .z = cuda_floats_of(backend, call, BLEND_Z),
        .y = cuda_floats_of(backend, call, BLEND_Y),
        .alpha = call->attrs.alpha,
        .beta = call->attrs.beta,
        .walk = cuda_walk_of(backend, call, BLEND_Y),
    };
    return cuda_check(backend, cuda_launch_blend(cuda_stream(backend, queue), &args), "blend");
}

const struct op_impl cuda_blend = {.supports = cuda_operands_supported, .run = blend_run};
