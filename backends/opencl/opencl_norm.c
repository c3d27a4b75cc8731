/* sum_of_squares: one group per part of the elements, then one over the parts; clip_factor: one group.
 *
 * See kernels/norm.cl.  The workspace contains the sums of the parts.  Their number, and therefore the order of the
 * sum, follows from the shape.
 */
#include "backends/opencl/opencl_kernels.h"

#define PART_ELEMENTS 4096
#define PARTS_MAX 256

static int64_t parts_of(int64_t count)
{
    return min_i64((count + PART_ELEMENTS - 1) / PART_ELEMENTS, PARTS_MAX);
}

static size_t sum_of_squares_workspace_bytes(const struct backend *backend, const struct op_call *call)
{
    (void)backend;
    return (size_t)parts_of(op_elements(call, SUM_OF_SQUARES_X)) * sizeof(float);
}

static enum gt_status sum_of_squares_run(struct backend *backend, int32_t queue, const struct op_call *call)
{
    struct opencl_launch launch;
    const int64_t count = op_elements(call, SUM_OF_SQUARES_X), parts = parts_of(count);
    (void)queue;
    opencl_group_begin(&launch, backend, &opencl_source_norm, "gt_sum_of_squares");
    opencl_arg_tensor(&launch, call, SUM_OF_SQUARES_X);
    opencl_arg_workspace(&launch, call, 0, sizeof(float));
    opencl_arg_i64(&launch, (count + parts - 1) / parts);
    opencl_arg_i64(&launch, count);
    TRY(opencl_run_groups(&launch, parts, 2.0 * (double)count));
    opencl_group_begin(&launch, backend, &opencl_source_norm, "gt_partials_sum");
    opencl_arg_workspace(&launch, call, 0, sizeof(float));
    opencl_arg_operand(&launch, call, SUM_OF_SQUARES_PARTIAL);
    opencl_arg_i64(&launch, parts);
    return opencl_run_groups(&launch, 1, 0.0);
}

static enum gt_status clip_factor_run(struct backend *backend, int32_t queue, const struct op_call *call)
{
    struct opencl_launch launch;
    (void)queue;
    opencl_group_begin(&launch, backend, &opencl_source_norm, "gt_clip_factor");
    opencl_arg_operand(&launch, call, CLIP_FACTOR_PARTIALS);
    opencl_arg_operand(&launch, call, CLIP_FACTOR_SCALARS);
    opencl_arg_f32(&launch, call->attrs.clip_max);
    opencl_arg_i64(&launch, op_elements(call, CLIP_FACTOR_PARTIALS));
    return opencl_run_groups(&launch, 1, 0.0);
}

const struct op_impl opencl_sum_of_squares = {
    .supports = opencl_floats_supported,
    .workspace_bytes = sum_of_squares_workspace_bytes,
    .run = sum_of_squares_run,
};
const struct op_impl opencl_clip_factor = {.supports = opencl_floats_supported, .run = clip_factor_run};
