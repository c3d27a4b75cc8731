/* Host side of dropout: samples, the threshold of the mask, and the launch of one elementwise kernel.
 *
 * No workspace.  y may be x: a thread reads its group before it writes it.
 */
#include "backends/cuda/cuda_dropout.h"

#include "backends/cuda/cuda.h"

static enum gt_status dropout_run(struct backend *backend, int32_t queue, const struct op_call *call)
{
    const int64_t sample_elements = call->attrs.time * op_columns(call, DROPOUT_X);
    const int64_t samples = op_elements(call, DROPOUT_X) / sample_elements;
    const struct cuda_dropout_args args = {
        .x = cuda_floats_of(backend, call, DROPOUT_X),
        .y = cuda_floats_of(backend, call, DROPOUT_Y),
        .scalars = cuda_operand(backend, call, DROPOUT_SCALARS),
        .samples = samples,
        .sample_elements = sample_elements,
        .site = call->attrs.site,
        .threshold = dropout_threshold(call->attrs.dropout),
        .scale = dropout_scale(call->attrs.dropout),
        .blocks = cuda_walk_blocks(backend, call, sample_elements, CUDA_GROUP * CUDA_WALK_THREADS),
        .blocks_of_samples = (int32_t)min_i64(samples, CUDA_GRID_YZ_MAX),
        .aligned = cuda_rows_aligned(backend, call, sample_elements),
    };
    return cuda_check(backend, cuda_launch_dropout(cuda_stream(backend, queue), &args), "dropout");
}

const struct op_impl cuda_dropout = {.supports = cuda_operands_supported, .run = dropout_run};
