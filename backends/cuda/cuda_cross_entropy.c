/* Host side of cross_entropy and loss_sum: shapes, operands, launches.
 *
 * No workspace: a block takes a row of logits, and one block all losses.
 */
#include "backends/cuda/cuda_cross_entropy.h"

#include "backends/cuda/cuda.h"
#include "backends/cuda/cuda_shapes.h"

#define THREADS_MIN 32
#define THREADS_MAX 512

static bool cross_entropy_supports(const struct backend *backend, const struct op_call *call)
{
    return cuda_operands_supported(backend, call) && op_rows(call, CROSS_ENTROPY_LOGITS) <= CUDA_GRID_X_MAX;
}

/* A thread for each group of a row, in whole warps. */
static int32_t threads_for(int64_t width)
{
    const int64_t groups = size_ceil_div(width, CUDA_GROUP);
    const int64_t lanes = size_ceil_div(groups, THREADS_MIN) * THREADS_MIN;
    return (int32_t)min_i64(lanes, THREADS_MAX);
}

/* The second shape has half as many threads, for rows that give all of them work: each takes twice the groups, and
 * there is less to add at the end. */
int32_t cuda_cross_entropy_shapes(const struct backend *backend, const struct op_call *call)
{
    (void)backend;
    return threads_for(op_columns(call, CROSS_ENTROPY_LOGITS)) == THREADS_MAX ? CUDA_ENTROPY_SHAPES : 1;
}

static int32_t threads_of(const struct backend *backend, const struct op_call *call)
{
    const int32_t threads = threads_for(op_columns(call, CROSS_ENTROPY_LOGITS));
    return cuda_shape_of(backend, call) == CUDA_ENTROPY_256 ? threads / 2 : threads;
}

static enum gt_status cross_entropy_run(struct backend *backend, int32_t queue, const struct op_call *call)
{
    const int64_t width = op_columns(call, CROSS_ENTROPY_LOGITS);
    const struct operand *logits = &call->operand[CROSS_ENTROPY_LOGITS];
    const struct cuda_cross_entropy_args args = {
        .targets = cuda_operand(backend, call, CROSS_ENTROPY_TARGETS),
        .scalars = cuda_operand(backend, call, CROSS_ENTROPY_SCALARS),
        .logits = cuda_floats_of(backend, call, CROSS_ENTROPY_LOGITS),
        .losses = cuda_operand(backend, call, CROSS_ENTROPY_LOSSES),
        .rows = op_rows(call, CROSS_ENTROPY_LOGITS),
        .width = width,
        .vocab = call->attrs.vocab,
        .threads = threads_of(backend, call),
        .gradient = call->attrs.gradient,
        .aligned = width % CUDA_GROUP == 0 && cuda_address_aligned(backend, logits->at),
    };
    return cuda_check(backend, cuda_launch_cross_entropy(cuda_stream(backend, queue), &args), "cross_entropy");
}

static enum gt_status loss_sum_run(struct backend *backend, int32_t queue, const struct op_call *call)
{
    const struct cuda_loss_sum_args args = {
        .losses = cuda_operand(backend, call, LOSS_SUM_LOSSES),
        .scalars = cuda_operand(backend, call, LOSS_SUM_SCALARS),
        .count = op_elements(call, LOSS_SUM_LOSSES),
    };
    return cuda_check(backend, cuda_launch_loss_sum(cuda_stream(backend, queue), &args), "loss_sum");
}

const struct op_impl cuda_cross_entropy = {.supports = cross_entropy_supports, .run = cross_entropy_run};
const struct op_impl cuda_loss_sum = {.supports = cuda_operands_supported, .run = loss_sum_run};
