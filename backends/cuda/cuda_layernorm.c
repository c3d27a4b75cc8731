/* Host side of layernorm_forward and layernorm_backward: shapes, operands, how the rows are split, launches.
 *
 * Workspace of the backward: for each part of the rows a strip of fp32 columns for dgain and one for dbias.  The number
 * of parts depends on the shape only.
 */
#include "backends/cuda/cuda_layernorm.h"

#include "backends/cuda/cuda.h"

static int64_t parts_of(const struct op_call *call)
{
    return cuda_strip_parts(op_rows(call, LAYERNORM_BACKWARD_X), op_columns(call, LAYERNORM_BACKWARD_X));
}

static size_t part_bytes(const struct op_call *call)
{
    return 2 * (size_t)cuda_strip_floats(op_columns(call, LAYERNORM_BACKWARD_X)) * sizeof(float);
}

static enum gt_status forward_run(struct backend *backend, int32_t queue, const struct op_call *call)
{
    const int64_t rows = op_rows(call, LAYERNORM_FORWARD_X), channels = op_columns(call, LAYERNORM_FORWARD_X);
    const struct cuda_layernorm_forward_args args = {
        .x = cuda_floats_of(backend, call, LAYERNORM_FORWARD_X),
        .gain = cuda_floats_of(backend, call, LAYERNORM_FORWARD_GAIN),
        .bias = cuda_floats_of(backend, call, LAYERNORM_FORWARD_BIAS),
        .y = cuda_floats_of(backend, call, LAYERNORM_FORWARD_Y),
        .mean = cuda_operand(backend, call, LAYERNORM_FORWARD_MEAN),
        .rstd = cuda_operand(backend, call, LAYERNORM_FORWARD_RSTD),
        .rows = rows,
        .channels = channels,
        .epsilon = call->attrs.epsilon,
        .blocks = cuda_walk_blocks(backend, call, rows, CUDA_LAYERNORM_WARPS),
        .aligned = cuda_rows_aligned(backend, call, channels),
    };
    return cuda_check(backend, cuda_launch_layernorm_forward(cuda_stream(backend, queue), &args), "layernorm_forward");
}

static size_t backward_workspace_bytes(const struct backend *backend, const struct op_call *call)
{
    (void)backend;
    return (size_t)parts_of(call) * part_bytes(call);
}

static struct cuda_layernorm_backward_args backward_args(const struct backend *backend, const struct op_call *call)
{
    const int64_t channels = op_columns(call, LAYERNORM_BACKWARD_X);
    const int64_t fitting = (int64_t)(CUDA_SHARED_DEFAULT_BYTES / part_bytes(call));
    return (struct cuda_layernorm_backward_args){
        .dy = cuda_floats_of(backend, call, LAYERNORM_BACKWARD_DY),
        .x = cuda_floats_of(backend, call, LAYERNORM_BACKWARD_X),
        .gain = cuda_floats_of(backend, call, LAYERNORM_BACKWARD_GAIN),
        .dx = cuda_floats_of(backend, call, LAYERNORM_BACKWARD_DX),
        .mean = cuda_operand(backend, call, LAYERNORM_BACKWARD_MEAN),
        .rstd = cuda_operand(backend, call, LAYERNORM_BACKWARD_RSTD),
        .strips = cuda_workspace(backend, call, backward_workspace_bytes(backend, call)),
        .rows = op_rows(call, LAYERNORM_BACKWARD_X),
        .channels = channels,
        .parts = parts_of(call),
        .strip_floats = cuda_strip_floats(channels),
        .warps = (int32_t)min_i64(max_i64(fitting, 1), CUDA_LAYERNORM_WARPS),
        .is_shared = fitting > 0,
        .accumulate = op_accumulates(call, LAYERNORM_BACKWARD_DX),
        .aligned = cuda_rows_aligned(backend, call, channels),
    };
}

static enum gt_status backward_run(struct backend *backend, int32_t queue, const struct op_call *call)
{
    const struct cuda_layernorm_backward_args args = backward_args(backend, call);
    const struct cuda_parts_args sum = {
        .strips = args.strips,
        .parts = args.parts,
        .columns = args.channels,
        .strip_floats = args.strip_floats,
        .strips_per_part = 2,
        .sums = call->operand[LAYERNORM_BACKWARD_DBIAS].present ? 2 : 1,
        .out = {cuda_floats_of(backend, call, LAYERNORM_BACKWARD_DGAIN),
                cuda_floats_of(backend, call, LAYERNORM_BACKWARD_DBIAS)},
        .accumulate = {op_accumulates(call, LAYERNORM_BACKWARD_DGAIN), op_accumulates(call, LAYERNORM_BACKWARD_DBIAS)},
    };
    TRY(cuda_check(backend, cuda_launch_layernorm_backward(cuda_stream(backend, queue), &args), "layernorm_backward"));
    return cuda_check(backend, cuda_launch_parts_sum(cuda_stream(backend, queue), &sum), "layernorm_backward");
}

const struct op_impl cuda_layernorm_forward = {.supports = cuda_operands_supported, .run = forward_run};
const struct op_impl cuda_layernorm_backward = {
    .supports = cuda_operands_supported, .workspace_bytes = backward_workspace_bytes, .run = backward_run};
