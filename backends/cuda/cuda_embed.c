/* Host side of embed_forward and embed_backward: shapes, operands, launches.
 *
 * No workspace: the host has sorted the rows by id, so that one block sums each row of dwte.
 */
#include "backends/cuda/cuda_embed.h"

#include "backends/cuda/cuda.h"

/* Rows and tiles of columns are the grid's x and y. */
static bool shape_supported(const struct op_call *call, int32_t slot)
{
    return op_rows(call, slot) <= CUDA_GRID_X_MAX &&
           op_columns(call, slot) <= (int64_t)CUDA_GRID_YZ_MAX * CUDA_EMBED_TILE;
}

static enum gt_status forward_run(struct backend *backend, int32_t queue, const struct op_call *call)
{
    const int64_t rows = op_rows(call, EMBED_FORWARD_Y), channels = op_columns(call, EMBED_FORWARD_Y);
    const struct cuda_embed_forward_args args = {
        .ids = cuda_operand(backend, call, EMBED_FORWARD_IDS),
        .wte = cuda_floats_of(backend, call, EMBED_FORWARD_WTE),
        .wpe = cuda_floats_of(backend, call, EMBED_FORWARD_WPE),
        .y = cuda_floats_of(backend, call, EMBED_FORWARD_Y),
        .scalars = cuda_operand(backend, call, EMBED_FORWARD_SCALARS),
        .rows = rows,
        .channels = channels,
        .time = call->attrs.time,
        .blocks = cuda_walk_blocks(backend, call, rows, CUDA_EMBED_WARPS),
        .aligned = cuda_rows_aligned(backend, call, channels),
    };
    return cuda_check(backend, cuda_launch_embed_forward(cuda_stream(backend, queue), &args), "embed_forward");
}

static bool backward_supports(const struct backend *backend, const struct op_call *call)
{
    return cuda_operands_supported(backend, call) && shape_supported(call, EMBED_BACKWARD_DY) &&
           shape_supported(call, EMBED_BACKWARD_DWPE);
}

static enum gt_status backward_run(struct backend *backend, int32_t queue, const struct op_call *call)
{
    const int64_t rows = op_rows(call, EMBED_BACKWARD_DY), channels = op_columns(call, EMBED_BACKWARD_DY);
    const struct cuda_embed_backward_args args = {
        .dy = cuda_floats_of(backend, call, EMBED_BACKWARD_DY),
        .ids = cuda_operand(backend, call, EMBED_BACKWARD_IDS),
        .order = cuda_operand(backend, call, EMBED_BACKWARD_ORDER),
        .starts = cuda_operand(backend, call, EMBED_BACKWARD_STARTS),
        .dwte = cuda_floats_of(backend, call, EMBED_BACKWARD_DWTE),
        .dwpe = cuda_floats_of(backend, call, EMBED_BACKWARD_DWPE),
        .rows = rows,
        .channels = channels,
        .time = call->attrs.time,
        .positions = op_rows(call, EMBED_BACKWARD_DWPE),
        .groups_max = min_i64(rows, op_rows(call, EMBED_BACKWARD_DWTE)),
        .accumulate = op_accumulates(call, EMBED_BACKWARD_DWPE),
        .aligned = cuda_rows_aligned(backend, call, channels),
    };
    return cuda_check(backend, cuda_launch_embed_backward(cuda_stream(backend, queue), &args), "embed_backward");
}

const struct op_impl cuda_embed_forward = {.supports = cuda_operands_supported, .run = forward_run};
const struct op_impl cuda_embed_backward = {.supports = backward_supports, .run = backward_run};
