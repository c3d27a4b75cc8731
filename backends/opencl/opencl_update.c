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

static size_t sum_of_squares_workspace_bytes(const struct opencl_backend *cl, const struct op_call *call)
{
    (void)cl;
    return (size_t)parts_of(call) * sizeof(float);
}

static enum gt_status sum_of_squares_run(struct opencl_backend *cl, const struct op_call *call)
{
    const int64_t count = op_elements(call, SUM_OF_SQUARES_X), parts = parts_of(call);
    TRY(opencl_groups(cl, call, &opencl_source_norm, "gt_sum_of_squares", "tw",
                      VALUES(I64(size_ceil_div(count, parts)), I64(count)), parts, 2.0 * (double)count));
    return opencl_groups(cl, call, &opencl_source_norm, "gt_sum", "w-a", VALUES(I64(0), I32(false), I64(parts)), 1,
                         0.0);
}

const struct opencl_op opencl_sum_of_squares = {
    .supports = opencl_floats_supported, .workspace_bytes = sum_of_squares_workspace_bytes, .run = sum_of_squares_run};
OPENCL_OP(clip_factor, opencl_floats_supported,
          opencl_groups(cl, call, &opencl_source_norm, "gt_clip_factor", "aa",
                        VALUES(F32(call->attrs.clip_max), I64(op_elements(call, CLIP_FACTOR_PARTIALS))), 1, 0.0))
OPENCL_OP(gradient_round, opencl_exact_supported,
          opencl_blocks(cl, call, &opencl_source_gradient_round, "gt_gradient_round", "aaa",
                        VALUES(I32(op_accumulates(call, GRADIENT_ROUND_Y)))))
OPENCL_OP(adamw, opencl_floats_supported,
          opencl_elements(cl, call, &opencl_source_adamw, "gt_adamw", "taatttt",
                          VALUES(VALUES_ADAMW(call->attrs, op_rows(call, ADAMW_CORRECTIONS)))))
OPENCL_OP(adamw_lean, opencl_exact_supported,
          opencl_blocks(cl, call, &opencl_source_adamw_lean, "gt_adamw_lean", "taaatta",
                        VALUES(VALUES_ADAMW(call->attrs, op_rows(call, ADAMW_LEAN_CORRECTIONS)),
                               I64(state_blocks(op_elements(call, ADAMW_LEAN_GRAD))))))
OPENCL_OP(muon_momentum, opencl_exact_supported,
          opencl_blocks(cl, call, &opencl_source_muon, "gt_muon_momentum", "tata", NO_VALUES))
OPENCL_OP(muon_normalize, opencl_exact_supported,
          opencl_elements(cl, call, &opencl_source_muon, "gt_muon_normalize", "aat", NO_VALUES))
OPENCL_OP(muon_step, opencl_exact_supported,
          opencl_blocks(cl, call, &opencl_source_muon, "gt_muon_step", "tatt",
                        VALUES(F32(call->attrs.alpha), F32(call->attrs.value), F32(call->attrs.weight_decay))))
