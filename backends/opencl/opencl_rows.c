/* Ops with sums within rows or over rows: the norms, rope, the gradient of a bias, cross entropy and the sum of its
 * losses.
 *
 * Sums within a row have one group per row.  Sums over rows are made in parts: the workspace contains the parts' sums,
 * [parts, columns] floats, which are then added in order.  cross_entropy has no workspace in any dtype: its kernel
 * reads the logits twice instead.
 */
#include "backends/opencl/opencl_launch.h"

#define FLOPS_PER_ELEMENT 10.0
#define FLOPS_PER_LOGIT 20.0 /* including exponentials */

static double flops_of(const int64_t *dims)
{
    return FLOPS_PER_ELEMENT * (double)dims[0] * (double)dims[1];
}

/* Returns the number of floats in the sums of all parts, of the operand in slot 0. */
static int64_t parts_elements(const struct op_call *call)
{
    return opencl_parts_of(call->operand[0].dims[0]).parts * call->operand[0].dims[1];
}

static enum gt_status layernorm_forward_run(struct opencl_backend *cl, const struct op_call *call)
{
    const int64_t *dims = call->operand[LAYERNORM_FORWARD_X].dims;
    return opencl_groups(cl, call, &opencl_source_layernorm, "gt_layernorm_forward", "tttatt",
                         VALUES(F32(call->attrs.epsilon), I64(dims[1])), dims[0], flops_of(dims));
}

/* The sums of dgain, followed by those of dbias where there is a mean. */
static size_t layernorm_backward_workspace_bytes(const struct opencl_backend *cl, const struct op_call *call)
{
    (void)cl;
    return (call->operand[LAYERNORM_BACKWARD_MEAN].present ? 2 : 1) * (size_t)parts_elements(call) * sizeof(float);
}

/* dx comes last: it may be the same memory as dy, which the sums over rows read. */
static enum gt_status layernorm_backward_run(struct opencl_backend *cl, const struct op_call *call)
{
    const int64_t *dims = call->operand[LAYERNORM_BACKWARD_DY].dims;
    const struct opencl_parts parts = opencl_parts_of(dims[0]);
    TRY(opencl_columns(cl, call, &opencl_source_layernorm, "gt_layernorm_backward_partial", "tt-a---tw",
                       VALUES(I64(parts.rows), I64(parts.part_rows), I64(parts.parts), I64(dims[1])), dims[1],
                       parts.parts, flops_of(dims)));
    if (call->operand[LAYERNORM_BACKWARD_DGAIN].present)
        TRY(opencl_parts_sum(cl, call, 0, parts.parts, LAYERNORM_BACKWARD_DGAIN));
    if (call->operand[LAYERNORM_BACKWARD_DBIAS].present)
        TRY(opencl_parts_sum(cl, call, parts_elements(call), parts.parts, LAYERNORM_BACKWARD_DBIAS));
    return opencl_groups(cl, call, &opencl_source_layernorm, "gt_layernorm_backward", "tttat--t",
                         VALUES(I32(op_accumulates(call, LAYERNORM_BACKWARD_DX)), I64(dims[1])), dims[0],
                         flops_of(dims));
}

/* The means of a row: 2 of all heads of the queries and of the keys, one of each head, or none. */
static int64_t rope_means(const struct op_call *call)
{
    const int64_t gains = op_elements(call, ROPE_FORWARD_GAIN), size = op_columns(call, ROPE_FORWARD_TABLE);
    const int64_t turned = (int64_t)call->attrs.heads + call->attrs.kv_heads;
    return gains == 0 ? 0 : gains == 2 * size ? turned : 2;
}

/* Two statistics of each mean, followed in the backward by the parts' sums of dgain. */
static size_t rope_workspace_bytes(const struct opencl_backend *cl, const struct op_call *call)
{
    const int64_t rows = op_rows(call, ROPE_FORWARD_X);
    const int64_t sums = call->operand[ROPE_BACKWARD_DGAIN].present
                             ? opencl_parts_of(rows).parts * op_elements(call, ROPE_BACKWARD_DGAIN)
                             : 0;
    (void)cl;
    return (size_t)(2 * rows * rope_means(call) + sums) * sizeof(float);
}

#define ROPE_VALUES                                                                                           \
    I64(op_columns(call, ROPE_FORWARD_X)), I64(op_columns(call, ROPE_FORWARD_TABLE)), I64(call->attrs.heads), \
        I64(call->attrs.kv_heads), I64(rope_means(call)), I64(call->attrs.time)

/* Makes the statistics, if there are gains, and then y, or dx of the backward. */
static enum gt_status rope_forward_run(struct opencl_backend *cl, const struct op_call *call)
{
    const int64_t rows = op_rows(call, ROPE_FORWARD_X), size = op_columns(call, ROPE_FORWARD_TABLE);
    const int64_t turned = ((int64_t)call->attrs.heads + call->attrs.kv_heads) * size / 2;
    const double elements = (double)op_elements(call, ROPE_FORWARD_X);
    if (rope_means(call) > 0)
        TRY(opencl_groups(cl, call, &opencl_source_rope, "gt_rope_statistics", "taatttw",
                          VALUES(ROPE_VALUES, F32(call->attrs.epsilon)), rows * rope_means(call),
                          FLOPS_PER_ELEMENT * elements));
    return opencl_columns(cl, call, &opencl_source_rope, "gt_rope", "taatttw",
                          VALUES(ROPE_VALUES, I32(call->kind == OP_ROPE_BACKWARD)),
                          op_columns(call, ROPE_FORWARD_X) - turned, rows, FLOPS_PER_ELEMENT * elements);
}

static enum gt_status rope_backward_run(struct opencl_backend *cl, const struct op_call *call)
{
    const int64_t rows = op_rows(call, ROPE_BACKWARD_DY), gains = op_elements(call, ROPE_BACKWARD_GAIN);
    const struct opencl_parts parts = opencl_parts_of(rows);
    TRY(rope_forward_run(cl, call));
    if (gains == 0)
        return GT_OK;
    TRY(opencl_columns(cl, call, &opencl_source_rope, "gt_rope_gain_partial", "taa--tw",
                       VALUES(ROPE_VALUES, I64(rows), I64(parts.part_rows), I64(gains)), gains, parts.parts,
                       FLOPS_PER_ELEMENT * (double)op_elements(call, ROPE_BACKWARD_DY)));
    return opencl_parts_sum(cl, call, 2 * rows * rope_means(call), parts.parts, ROPE_BACKWARD_DGAIN);
}

static size_t bias_backward_workspace_bytes(const struct opencl_backend *cl, const struct op_call *call)
{
    (void)cl;
    return (size_t)parts_elements(call) * sizeof(float);
}

static enum gt_status bias_backward_run(struct opencl_backend *cl, const struct op_call *call)
{
    const int64_t *dims = call->operand[BIAS_BACKWARD_DY].dims;
    const struct opencl_parts parts = opencl_parts_of(dims[0]);
    TRY(opencl_columns(cl, call, &opencl_source_layernorm, "gt_bias_backward_partial", "t-w",
                       VALUES(I64(parts.rows), I64(parts.part_rows), I64(dims[1])), dims[1], parts.parts,
                       (double)dims[0] * (double)dims[1]));
    return opencl_parts_sum(cl, call, 0, parts.parts, BIAS_BACKWARD_DBIAS);
}

const struct opencl_op opencl_layernorm_forward = {.supports = opencl_floats_supported, .run = layernorm_forward_run};
const struct opencl_op opencl_layernorm_backward = {.supports = opencl_floats_supported,
                                                    .workspace_bytes = layernorm_backward_workspace_bytes,
                                                    .run = layernorm_backward_run};
const struct opencl_op opencl_rmsnorm_forward = {.supports = opencl_floats_supported, .run = layernorm_forward_run};
const struct opencl_op opencl_rmsnorm_backward = {.supports = opencl_floats_supported,
                                                  .workspace_bytes = layernorm_backward_workspace_bytes,
                                                  .run = layernorm_backward_run};
const struct opencl_op opencl_rope_forward = {
    .supports = opencl_floats_supported, .workspace_bytes = rope_workspace_bytes, .run = rope_forward_run};
const struct opencl_op opencl_rope_backward = {
    .supports = opencl_floats_supported, .workspace_bytes = rope_workspace_bytes, .run = rope_backward_run};
const struct opencl_op opencl_bias_backward = {
    .supports = opencl_floats_supported, .workspace_bytes = bias_backward_workspace_bytes, .run = bias_backward_run};
OPENCL_OP(cross_entropy, opencl_floats_supported,
          opencl_groups(cl, call, &opencl_source_cross_entropy, "gt_cross_entropy", "aata",
                        VALUES(I32(call->attrs.gradient), I64(call->attrs.vocab),
                               I64(op_columns(call, CROSS_ENTROPY_LOGITS))),
                        op_rows(call, CROSS_ENTROPY_LOGITS),
                        FLOPS_PER_LOGIT *(double)op_elements(call, CROSS_ENTROPY_LOGITS)))
OPENCL_OP(loss_sum, opencl_floats_supported,
          opencl_groups(cl, call, &opencl_source_norm, "gt_sum", "aa",
                        VALUES(I64(SCALAR_LOSS_SUM), I32(true), I64(op_elements(call, LOSS_SUM_LOSSES))), 1, 0.0))
