/* Host side of gradient_round: operands, and the launch of one elementwise kernel.
 *
 * No workspace.
 */
#include "backends/cuda/cuda_gradient_round.h"

#include "backends/cuda/cuda.h"

static enum gt_status gradient_round_run(struct backend *backend, int32_t queue, const struct op_call *call)
{
    const struct cuda_gradient_round_args args = {
        .x = cuda_floats_of(backend, call, GRADIENT_ROUND_X),
        .y = cuda_floats_of(backend, call, GRADIENT_ROUND_Y),
        .scalars = cuda_operand(backend, call, GRADIENT_ROUND_SCALARS),
        .index_base = call->attrs.index_base,
        .accumulate = op_accumulates(call, GRADIENT_ROUND_Y),
        .walk = cuda_walk_of(backend, call, GRADIENT_ROUND_Y),
    };
    return cuda_check(backend, cuda_launch_gradient_round(cuda_stream(backend, queue), &args), "gradient_round");
}

const struct op_impl cuda_gradient_round = {.supports = cuda_operands_supported, .run = gradient_round_run};
