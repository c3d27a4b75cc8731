/* Host side of residual: operands, and the launch of one elementwise kernel.
 *
 * No workspace.  r may be x or y: a thread reads its group before it writes it.
 */
#include "backends/cuda/cuda_residual.h"

#include "backends/cuda/cuda.h"

static enum gt_status residual_run(struct backend *backend, int32_t queue, const struct op_call *call)
{
    const struct cuda_residual_args args = {
        .x = cuda_floats_of(backend, call, RESIDUAL_X),
        .y = cuda_floats_of(backend, call, RESIDUAL_Y),
        .r = cuda_floats_of(backend, call, RESIDUAL_R),
        .walk = cuda_walk_of(backend, call, RESIDUAL_R),
    };
    return cuda_check(backend, cuda_launch_residual(cuda_stream(backend, queue), &args), "residual");
}

const struct op_impl cuda_residual = {.supports = cuda_operands_supported, .run = residual_run};
