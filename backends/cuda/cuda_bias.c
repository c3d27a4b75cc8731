/* Host side of bias_backward: how many parts the rows make, and two launches.
 *
 * Workspace: a strip of fp32 columns for each part; the number of parts depends on the shape only.
 */
#include "backends/cuda/cuda_bias.h"

#include "backends/cuda/cuda.h"

static bool bias_supports(const struct backend *backend, const struct op_call *call)
{
    const int64_t columns = op_columns(call, BIAS_BACKWARD_DY);
    return cuda_operands_supported(backend, call) && columns <= (int64_t)CUDA_GRID_YZ_MAX * CUDA_TILE_COLUMNS;
}

static size_t bias_workspace_bytes(const struct backend *backend, const struct op_call *call)
{
    const int64_t rows = op_rows(call, BIAS_BACKWARD_DY), columns = op_columns(call, BIAS_BACKWARD_DY);
    (void)backend;
    return (size_t)cuda_strip_parts(rows, columns) * (size_t)cuda_strip_floats(columns) * sizeof(float);
}

static enum gt_status bias_run(struct backend *backend, int32_t queue, const struct op_call *call)
{
    const int64_t rows = op_rows(call, BIAS_BACKWARD_DY), columns = op_columns(call, BIAS_BACKWARD_DY);
    float *strips = cuda_workspace(backend, call, bias_workspace_bytes(backend, call));
    const struct cuda_bias_args args = {
        .dy = cuda_floats_of(backend, call, BIAS_BACKWARD_DY),
        .strips = strips,
        .rows = rows,
        .columns = columns,
        .parts = cuda_strip_parts(rows, columns),
        .strip_floats = cuda_strip_floats(columns),
        .aligned = cuda_rows_aligned(backend, call, columns),
    };
    const struct cuda_parts_args sum = {
        .strips = strips,
        .parts = args.parts,
        .columns = columns,
        .strip_floats = args.strip_floats,
        .strips_per_part = 1,
        .sums = 1,
        .out = {cuda_floats_of(backend, call, BIAS_BACKWARD_DBIAS)},
        .accumulate = {op_accumulates(call, BIAS_BACKWARD_DBIAS)},
    };
    TRY(cuda_check(backend, cuda_launch_bias_backward(cuda_stream(backend, queue), &args), "bias_backward"));
    return cuda_check(backend, cuda_launch_parts_sum(cuda_stream(backend, queue), &sum), "bias_backward");
}

const struct op_impl cuda_bias_backward = {
    .supports = bias_supports, .workspace_bytes = bias_workspace_bytes, .run = bias_run};
