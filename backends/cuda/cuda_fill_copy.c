/* Host side of fill and copy: operands, and the launch of one elementwise kernel.
 *
 * No workspace.
 */
#include "backends/cuda/cuda_fill_copy.h"

#include "backends/cuda/cuda.h"

static enum gt_status fill_run(struct backend *backend, int32_t queue, const struct op_call *call)
{
    const struct cuda_fill_args args = {
        .y = cuda_floats_of(backend, call, FILL_Y),
        .value = call->attrs.value,
        .walk = cuda_walk_of(backend, call, FILL_Y),
    };
    return cuda_check(backend, cuda_launch_fill(cuda_stream(backend, queue), &args), "fill");
}

static enum gt_status copy_run(struct backend *backend, int32_t queue, const struct op_call *call)
{
    const struct cuda_copy_args args = {
        .x = cuda_floats_of(backend, call, COPY_X),
        .y = cuda_floats_of(backend, call, COPY_Y),
        .accumulate = op_accumulates(call, COPY_Y),
        .walk = cuda_walk_of(backend, call, COPY_X),
    };
    return cuda_check(backend, cuda_launch_copy(cuda_stream(backend, queue), &args), "copy");
}

const struct op_impl cuda_fill = {.supports = cuda_operands_supported, .run = fill_run};
const struct op_impl cuda_copy = {.supports = cuda_operands_supported, .run = copy_run};
