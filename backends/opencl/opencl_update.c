/* Ops of an update: the gradient's norm and rounding, AdamW, and Muon's steps; see the kernels' files.
 *
 * Ops that are defined bit for bit are not supported on devices without subnormals.
 */
#include "backends/opencl/opencl_launch.h"

#define PART_ELEMENTS 4096
#define PARTS_MAX 256

/* The number of parts of sum_of_squares, and therefore the order of the sum, follows from the shape. */
static int64_t parts_of(const struct op_call *call)
{
    return min_i64(size_ceil_div(op_elements(call, SUM_OF_SQUARES_X), PART_ELEMENTS), PARTS_MAX);
}

static size_t sum_of_squares_workspace_bytes(const struct backend *backend, const struct op_call *call)
{
    (void)backend;
    return (size_t)parts_of(call) * sizeof(float);
}

static enum gt_status sum_of_squares_run(struct backend *backend, int32_t queue, const struct op_call *call)
{
    const int64_t count = op_elements(call, SUM_OF_SQUARES_X), parts = parts_of(call);
    (void)queue;
    TRY(opencl_groups(backend, call, &opencl_source_norm, "gt_sum_of_squares", "tw",
                      VALUES(I64(size_ceil_div(count, parts)), I64(count)), parts, 2.0 * (double)count));
    return opencl_groups(backend, call, &opencl_source_norm, "gt_sum", "w-a", VALUES(I64(0), I32(false), I64(parts)), 1,
                         0.0);
}

static enum gt_status clip_factor_run(struct backend *backend, int32_t queue, const struct op_call *call)
{
    (void)queue;
    return opencl_groups(backend, call, &opencl_source_norm, "gt_clip_factor", "aa",
                         VALUES(F32(call->attrs.clip_max), I64(op_elements(call, CLIP_FACTOR_PARTIALS))), 1, 0.0);
}

static enum gt_status gradient_round_run(struct backend *backend, int32_t queue, const struct op_call *call)
{
    (void)queue;
    return opencl_blocks(backend, call, &opencl_source_gradient_round, "gt_gradient_round", "aaa",
                         VALUES(I32(op_accumulates(call, GRADIENT_ROUND_Y))));
}

static enum gt_status adamw_run(struct backend *backend, int32_t queue, const struct op_call *call)
{
    (void)queue;
    return opencl_elements(backend, call, &opencl_source_adamw, "gt_adamw", "taatttt",
                           VALUES(VALUES_ADAMW(call->attrs, call->operand[ADAMW_CORRECTIONS].dims[0])));
}

static enum gt_status adamw_lean_run(struct backend *backend, int32_t queue, const struct op_call *call)
{
    (void)queue;
    return opencl_blocks(backend, call, &opencl_source_adamw_lean, "gt_adamw_lean", "taaatta",
                         VALUES(VALUES_ADAMW(call->attrs, call->operand[ADAMW_LEAN_CORRECTIONS].dims[0]),
                                I64(state_blocks(op_elements(call, ADAMW_LEAN_GRAD)))));
}

static enum gt_status muon_momentum_run(struct backend *backend, int32_t queue, const struct op_call *call)
{
    (void)queue;
    return opencl_blocks(backend, call, &opencl_source_muon, "gt_muon_momentum", "tata", NO_VALUES);
}

static enum gt_status muon_normalize_run(struct backend *backend, int32_t queue, const struct op_call *call)
{
    (void)queue;
    return opencl_elements(backend, call, &opencl_source_muon, "gt_muon_normalize", "aat", NO_VALUES);
}

static enum gt_status muon_step_run(struct backend *backend, int32_t queue, const struct op_call *call)
{
    const struct op_attrs *attrs = &call->attrs;
    (void)queue;
    return opencl_blocks(backend, call, &opencl_source_muon, "gt_muon_step", "tatt",
                         VALUES(F32(attrs->alpha), F32(attrs->value), F32(attrs->weight_decay)));
}

const struct op_impl opencl_sum_of_squares = {
    .supports = opencl_floats_supported, .workspace_bytes = sum_of_squares_workspace_bytes, .run = sum_of_squares_run};
const struct op_impl opencl_clip_factor = {.supports = opencl_floats_supported, .run = clip_factor_run};
const struct op_impl opencl_gradient_round = {.supports = opencl_exact_supported, .run = gradient_round_run};
const struct op_impl opencl_adamw = {.supports = opencl_floats_supported, .run = adamw_run};
const struct op_impl opencl_adamw_lean = {.supports = opencl_exact_supported, .run = adamw_lean_run};
const struct op_impl opencl_muon_momentum = {.supports = opencl_exact_supported, .run = muon_momentum_run};
const struct op_impl opencl_muon_normalize = {.supports = opencl_exact_supported, .run = muon_normalize_run};
const struct op_impl opencl_muon_step = {.supports = opencl_exact_supported, .run = muon_step_run};
