/* Host side of sum_of_squares and clip_factor: how a tensor is split into parts, and the launches.
 *
 * The workspace of sum_of_squares is one word for each part; the number of parts depends on the shape only.  A tensor
 * of one part needs neither workspace nor a second launch.
 */
#include "backends/cuda/cuda_norm.h"

#include "backends/cuda/cuda.h"

#define PARTS_MAX 256
#define PART_ELEMENTS 16384

static int64_t parts_of(const struct op_call *call)
{
    return min_i64(size_ceil_div(op_elements(call, SUM_OF_SQUARES_X), PART_ELEMENTS), PARTS_MAX);
}

static size_t square_workspace_bytes(const struct backend *backend, const struct op_call *call)
{
    const int64_t parts = parts_of(call);
    (void)backend;
    return parts > 1 ? (size_t)parts * sizeof(float) : 0;
}

static enum gt_status square_run(struct backend *backend, int32_t queue, const struct op_call *call)
{
    float *out = cuda_operand(backend, call, SUM_OF_SQUARES_PARTIAL);
    float *workspace = cuda_workspace(backend, call, square_workspace_bytes(backend, call));
    const struct cuda_sum_of_squares_args args = {
        .x = cuda_floats_of(backend, call, SUM_OF_SQUARES_X),
        .partials = workspace != NULL ? workspace : out,
        .out = out,
        .elements = op_elements(call, SUM_OF_SQUARES_X),
        .parts = parts_of(call),
        .aligned = cuda_address_aligned(backend, call->operand[SUM_OF_SQUARES_X].at),
    };
    return cuda_check(backend, cuda_launch_sum_of_squares(cuda_stream(backend, queue), &args), "sum_of_squares");
}

static enum gt_status clip_run(struct backend *backend, int32_t queue, const struct op_call *call)
{
    const struct cuda_clip_factor_args args = {
        .partials = cuda_operand(backend, call, CLIP_FACTOR_PARTIALS),
        .scalars = cuda_operand(backend, call, CLIP_FACTOR_SCALARS),
        .count = op_elements(call, CLIP_FACTOR_PARTIALS),
        .clip_max = call->attrs.clip_max,
    };
    return cuda_check(backend, cuda_launch_clip_factor(cuda_stream(backend, queue), &args), "clip_factor");
}

const struct op_impl cuda_sum_of_squares = {
    .supports = cuda_operands_supported, .workspace_bytes = square_workspace_bytes, .run = square_run};
const struct op_impl cuda_clip_factor = {.supports = cuda_operands_supported, .run = clip_run};
