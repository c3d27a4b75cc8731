/* Ops without sums over rows: fill, copy, residual, blend, gelu, swiglu, dropout, and the embeddings.
 *
 * The kernels are in kernels/elementwise.cl, gelu.cl and embed.cl.  None needs a workspace.
 */
#include "backends/opencl/opencl_launch.h"

static enum gt_status fill_run(struct backend *backend, int32_t queue, const struct op_call *call)
{
    (void)queue;
    return opencl_elements(backend, call, &opencl_source_elementwise, "gt_fill", "t", VALUES(F32(call->attrs.value)));
}

/* A copy rounds once, to the dtype of y; between equal dtypes it copies the bits. */
static enum gt_status copy_run(struct backend *backend, int32_t queue, const struct op_call *call)
{
    (void)queue;
    return opencl_elements(backend, call, &opencl_source_elementwise, "gt_copy", "tt",
                           VALUES(I32(op_accumulates(call, COPY_Y))));
}

static enum gt_status residual_run(struct backend *backend, int32_t queue, const struct op_call *call)
{
    (void)queue;
    return opencl_elements(backend, call, &opencl_source_elementwise, "gt_residual", "ttt", NO_VALUES);
}

static enum gt_status blend_run(struct backend *backend, int32_t queue, const struct op_call *call)
{
    (void)queue;
    return opencl_elements(backend, call, &opencl_source_elementwise, "gt_blend", "ttt",
                           VALUES(F32(call->attrs.alpha), F32(call->attrs.beta)));
}

static enum gt_status gelu_forward_run(struct backend *backend, int32_t queue, const struct op_call *call)
{
    (void)queue;
    return opencl_elements(backend, call, &opencl_source_gelu, "gt_gelu_forward", "tt", VALUES(I32(call->attrs.gelu)));
}

static enum gt_status gelu_backward_run(struct backend *backend, int32_t queue, const struct op_call *call)
{
    (void)queue;
    return opencl_elements(backend, call, &opencl_source_gelu, "gt_gelu_backward", "ttt",
                           VALUES(I32(call->attrs.gelu)));
}

/* One work-item per eight elements that share a block of random numbers.  The threshold and the scale come from op.h,
 * so masks are the same in every backend. */
static enum gt_status dropout_run(struct backend *backend, int32_t queue, const struct op_call *call)
{
    const struct op_attrs *attrs = &call->attrs;
    const int64_t sample_elements = attrs->time * call->operand[DROPOUT_X].dims[1];
    (void)queue;
    return opencl_columns(backend, call, &opencl_source_elementwise, "gt_dropout", "tat",
                          VALUES(I32(attrs->site), U32(dropout_threshold(attrs->dropout)),
                                 F32(dropout_scale(attrs->dropout)), I64(sample_elements)),
                          (sample_elements + 7) / 8, op_elements(call, DROPOUT_X) / sample_elements, 0.0);
}

static enum gt_status embed_forward_run(struct backend *backend, int32_t queue, const struct op_call *call)
{
    const int64_t *dims = call->operand[EMBED_FORWARD_Y].dims;
    (void)queue;
    return opencl_columns(backend, call, &opencl_source_embed, "gt_embed_forward", "attat",
                          VALUES(I32(call->attrs.time), I64(dims[1])), dims[1], dims[0], 0.0);
}

/* Only the device knows the number of distinct ids in a micro-batch, so their kernel is launched for the maximum. */
static enum gt_status embed_backward_run(struct backend *backend, int32_t queue, const struct op_call *call)
{
    const int64_t rows = call->operand[EMBED_BACKWARD_DY].dims[0], channels = call->operand[EMBED_BACKWARD_DY].dims[1];
    const int32_t time = call->attrs.time;
    (void)queue;
    TRY(opencl_columns(backend, call, &opencl_source_embed, "gt_embed_backward_tokens", "taaat", VALUES(I64(channels)),
                       channels, min_i64(rows, call->operand[EMBED_BACKWARD_DWTE].dims[0]), 0.0));
    if (!call->operand[EMBED_BACKWARD_DWPE].present)
        return GT_OK;
    return opencl_columns(
        backend, call, &opencl_source_embed, "gt_embed_backward_positions", "t----t",
        VALUES(I32(time), I32(op_accumulates(call, EMBED_BACKWARD_DWPE)), I64(rows / time), I64(channels)), channels,
        call->operand[EMBED_BACKWARD_DWPE].dims[0], 0.0);
}

static enum gt_status swiglu_forward_run(struct backend *backend, int32_t queue, const struct op_call *call)
{
    const int64_t columns = op_columns(call, SWIGLU_FORWARD_Y);
    (void)queue;
    return opencl_columns(backend, call, &opencl_source_gelu, "gt_swiglu_forward", "tt", VALUES(I64(columns)), columns,
                          op_rows(call, SWIGLU_FORWARD_Y), 0.0);
}

static enum gt_status swiglu_backward_run(struct backend *backend, int32_t queue, const struct op_call *call)
{
    const int64_t columns = op_columns(call, SWIGLU_BACKWARD_DY);
    (void)queue;
    return opencl_columns(backend, call, &opencl_source_gelu, "gt_swiglu_backward", "ttt", VALUES(I64(columns)),
                          columns, op_rows(call, SWIGLU_BACKWARD_DY), 0.0);
}

const struct op_impl opencl_fill = {.supports = opencl_floats_supported, .run = fill_run};
const struct op_impl opencl_copy = {.supports = opencl_floats_supported, .run = copy_run};
const struct op_impl opencl_residual = {.supports = opencl_floats_supported, .run = residual_run};
const struct op_impl opencl_blend = {.supports = opencl_exact_supported, .run = blend_run};
const struct op_impl opencl_gelu_forward = {.supports = opencl_floats_supported, .run = gelu_forward_run};
const struct op_impl opencl_gelu_backward = {.supports = opencl_floats_supported, .run = gelu_backward_run};
const struct op_impl opencl_swiglu_forward = {.supports = opencl_floats_supported, .run = swiglu_forward_run};
const struct op_impl opencl_swiglu_backward = {.supports = opencl_floats_supported, .run = swiglu_backward_run};
const struct op_impl opencl_dropout = {.supports = opencl_floats_supported, .run = dropout_run};
const struct op_impl opencl_embed_forward = {.supports = opencl_floats_supported, .run = embed_forward_run};
const struct op_impl opencl_embed_backward = {.supports = opencl_floats_supported, .run = embed_backward_run};
