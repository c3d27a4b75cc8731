/* Ops without sums over rows: fill, copy, residual, blend, gelu, swiglu, dropout, and the embeddings.
 *
 * The kernels are in kernels/elementwise.cl, gelu.cl and embed.cl.  None needs a workspace.
 */
#include "backends/opencl/opencl_launch.h"

OPENCL_OP(fill, opencl_floats_supported,
          opencl_elements(cl, call, &opencl_source_elementwise, "gt_fill", "t", VALUES(F32(call->attrs.value))))
OPENCL_OP(copy, opencl_floats_supported,
          opencl_elements(cl, call, &opencl_source_elementwise, "gt_copy", "tt",
                          VALUES(I32(op_accumulates(call, COPY_Y)))))
OPENCL_OP(residual, opencl_floats_supported,
          opencl_elements(cl, call, &opencl_source_elementwise, "gt_residual", "ttt", NO_VALUES))
OPENCL_OP(blend, opencl_exact_supported,
          opencl_elements(cl, call, &opencl_source_elementwise, "gt_blend", "ttt",
                          VALUES(F32(call->attrs.alpha), F32(call->attrs.beta))))
OPENCL_OP(gelu_forward, opencl_floats_supported,
          opencl_elements(cl, call, &opencl_source_gelu, "gt_gelu_forward", "tt", VALUES(I32(call->attrs.gelu))))
OPENCL_OP(gelu_backward, opencl_floats_supported,
          opencl_elements(cl, call, &opencl_source_gelu, "gt_gelu_backward", "ttt", VALUES(I32(call->attrs.gelu))))
OPENCL_OP(swiglu_forward, opencl_floats_supported,
          opencl_columns(cl, call, &opencl_source_gelu, "gt_swiglu_forward", "tt",
                         VALUES(I64(op_columns(call, SWIGLU_FORWARD_Y))), op_columns(call, SWIGLU_FORWARD_Y),
                         op_rows(call, SWIGLU_FORWARD_Y), 0.0))
OPENCL_OP(swiglu_backward, opencl_floats_supported,
          opencl_columns(cl, call, &opencl_source_gelu, "gt_swiglu_backward", "ttt",
                         VALUES(I64(op_columns(call, SWIGLU_BACKWARD_DY))), op_columns(call, SWIGLU_BACKWARD_DY),
                         op_rows(call, SWIGLU_BACKWARD_DY), 0.0))
OPENCL_OP(embed_forward, opencl_floats_supported,
          opencl_columns(cl, call, &opencl_source_embed, "gt_embed_forward", "attata",
                         VALUES(I32(call->operand[EMBED_FORWARD_FIRST].present), I32(call->attrs.time),
                                I64(op_columns(call, EMBED_FORWARD_Y))),
                         op_columns(call, EMBED_FORWARD_Y), op_rows(call, EMBED_FORWARD_Y), 0.0))

/* One work-item per eight elements that share a block of random numbers.  The threshold and the scale come from op.h,
 * so masks are the same in every backend. */
static enum gt_status dropout_run(struct opencl_backend *cl, const struct op_call *call)
{
    const struct op_attrs *attrs = &call->attrs;
    const int64_t sample_elements = attrs->time * op_columns(call, DROPOUT_X);
    return opencl_columns(cl, call, &opencl_source_elementwise, "gt_dropout", "tat",
                          VALUES(I32(attrs->site), U32(dropout_threshold(attrs->dropout)),
                                 F32(dropout_scale(attrs->dropout)), I64(sample_elements)),
                          (sample_elements + 7) / 8, op_elements(call, DROPOUT_X) / sample_elements, 0.0);
}

/* Only the device knows the number of distinct ids in a micro-batch, so their kernel is launched for the maximum. */
static enum gt_status embed_backward_run(struct opencl_backend *cl, const struct op_call *call)
{
    const int64_t rows = op_rows(call, EMBED_BACKWARD_DY), channels = op_columns(call, EMBED_BACKWARD_DY);
    const int32_t time = call->attrs.time;
    TRY(opencl_columns(cl, call, &opencl_source_embed, "gt_embed_backward_tokens", "taaat", VALUES(I64(channels)),
                       channels, min_i64(rows, op_rows(call, EMBED_BACKWARD_DWTE)), 0.0));
    if (!call->operand[EMBED_BACKWARD_DWPE].present)
        return GT_OK;
    return opencl_columns(cl, call, &opencl_source_embed, "gt_embed_backward_positions", "t----ta",
                          VALUES(I32(call->operand[EMBED_BACKWARD_FIRST].present), I32(time),
                                 I32(op_accumulates(call, EMBED_BACKWARD_DWPE)), I64(rows / time), I64(channels)),
                          channels, op_rows(call, EMBED_BACKWARD_DWPE), 0.0);
}

const struct opencl_op opencl_dropout = {.supports = opencl_floats_supported, .run = dropout_run};
const struct opencl_op opencl_embed_backward = {.supports = opencl_floats_supported, .run = embed_backward_run};
