/* The host side of all ops except attention and products: operands, values and numbers of
 * work-items.  The kernels' files describe the computations.
 *
 * Sums within a row have one group per row.  Sums over rows are made in parts: the workspace
 * contains the parts' sums, [parts, columns] floats, which are then added in order.  cross_entropy
 * has no workspace in any dtype: its kernel reads the logits twice instead.  Ops that are defined
 * bit for bit are not supported on devices without subnormals.
 */
#include "backends/delta.h"
#include "backends/opencl/opencl_error.h"
#include "backends/opencl/opencl_launch.h"

#define GROUP_ITEMS_MAX 256
#define ITEM_ELEMENTS 8 /* GT_EACH of kernels/common.clh */
/* The largest number of parts in a sum over rows.  Must not exceed OP_PARTIAL_ROWS, which plans for
 * other devices assume. */
#define ROW_PARTS_MAX 128
#define PART_ROWS 32
#define SQUARE_PARTS_MAX 256
#define SQUARE_PART_ELEMENTS 4096
#define FLOPS_PER_ELEMENT 10.0
#define FLOPS_PER_LOGIT 20.0 /* including exponentials */

/* ---- launches of kernels that are built with GT_GROUP, the number of work-items in a group that
 * reduces, and with exact division if the device has it ---- */

static int32_t group_items(const struct opencl_backend *cl)
{
    int32_t items = GROUP_ITEMS_MAX;
    while (items > 1 && (size_t)items > cl->device.work_group_max)
        items /= 2;
    return items;
}

/* A kernel, and the forms of its operands. */
struct kernel {
    const struct opencl_source *source;
    const char *name, *forms;
};
#define KERNEL(source, name, forms) ((struct kernel){&opencl_source_##source, name, forms})

static struct opencl_launch group_begin(struct opencl_backend *cl, const struct op_call *call,
                                        struct kernel kernel, const struct opencl_value *values)
{
    struct opencl_launch launch;
    char options[OPENCL_OPTIONS_MAX];
    snprintf(options, sizeof options, "-DGT_GROUP=%" PRId32 "%s", group_items(cl),
             cl->device.has_exact_division
                 ? " -DGT_EXACT_DIVISION -cl-fp32-correctly-rounded-divide-sqrt"
                 : "");
    opencl_launch_begin(&launch, cl, kernel.source, options, kernel.name);
    opencl_arg_operands(&launch, call, kernel.forms);
    opencl_arg_values(&launch, values);
    return launch;
}

/* Runs one work-item per `each` elements.  Passes `count` as the kernel's last value. */
static enum gt_status elements_launch(struct opencl_launch *launch, int64_t count, int64_t each)
{
    const int64_t items = group_items(launch->cl);
    opencl_arg_values(launch, VALUES(I64(count)));
    return opencl_launch_run(launch, size_ceil_div(count, items * each), (size_t)items, 0.0);
}

/* The same for the elements of operand 0. */
static enum gt_status elements_run(struct opencl_backend *cl, const struct op_call *call,
                                   struct kernel kernel, const struct opencl_value *values)
{
    struct opencl_launch launch = group_begin(cl, call, kernel, values);
    return elements_launch(&launch, op_elements(call, 0), ITEM_ELEMENTS);
}

static enum gt_status groups_run(struct opencl_backend *cl, const struct op_call *call,
                                 struct kernel kernel, const struct opencl_value *values,
                                 int64_t groups, double flops)
{
    struct opencl_launch launch = group_begin(cl, call, kernel, values);
    return opencl_launch_run(&launch, groups, (size_t)group_items(cl), flops);
}

/* Runs one group for each block of STATE_BLOCK elements of operand 0.  Passes the op's index base
 * and the number of elements as the kernel's last values. */
static enum gt_status blocks_run(struct opencl_backend *cl, const struct op_call *call,
                                 struct kernel kernel, const struct opencl_value *values)
{
    struct opencl_launch launch = group_begin(cl, call, kernel, values);
    const int64_t count = op_elements(call, 0);
    opencl_arg_values(&launch, VALUES(I64(call->attrs.index_base), I64(count)));
    return opencl_launch_run(&launch, state_blocks(count), (size_t)group_items(cl), 0.0);
}

/* Runs one work-item per column, for each of `rows` rows. */
static enum gt_status columns_run(struct opencl_backend *cl, const struct op_call *call,
                                  struct kernel kernel, const struct opencl_value *values,
                                  int64_t columns, int64_t rows, double flops)
{
    struct opencl_launch launch = group_begin(cl, call, kernel, values);
    return opencl_launch_columns(&launch, columns, rows, flops);
}

static bool has_subnormals(const struct opencl_backend *cl, const struct op_call *call)
{
    (void)call;
    return cl->device.has_subnormals;
}

/* Defines the op `name`.  `launches` is an expression of `cl` and `call`, whose names the caller
 * chooses.  The workspace has `floats` floats, an expression that may use both, too. */
#define OPENCL_OP_WITH(name, supported, cl, call, floats, launches)                         \
    static size_t name##_bytes(const struct opencl_backend *cl, const struct op_call *call) \
    {                                                                                       \
        (void)cl;                                                                           \
        (void)call;                                                                         \
        return (size_t)(floats) * sizeof(float);                                            \
    }                                                                                       \
    static enum gt_status name##_run(struct opencl_backend *cl, const struct op_call *call) \
    {                                                                                       \
        return launches;                                                                    \
    }                                                                                       \
    const struct opencl_op opencl_##name = {                                                \
        .supports = supported, .workspace_bytes = name##_bytes, .run = name##_run};
/* An op without a workspace, for all operands that its rule accepts. */
#define OPENCL_OP(name, cl, call, launches) OPENCL_OP_WITH(name, NULL, cl, call, 0, launches)
/* An op that is defined bit for bit, and therefore needs a device with subnormal numbers. */
#define OPENCL_OP_EXACT(name, cl, call, launches) \
    OPENCL_OP_WITH(name, has_subnormals, cl, call, 0, launches)

/* ---- elementwise ---- */

OPENCL_OP(fill, cl, call,
          elements_run(cl, call, KERNEL(elementwise, "gt_fill", "t"),
                       VALUES(F32(call->attrs.value))))

/* fetch and store copy between buffers, in queues of their own, after the preceding ops.  Each
 * queue is flushed, because a driver may otherwise hold back commands that another queue waits for.
 */
static enum gt_status move_run(struct opencl_backend *cl, const struct op_call *call)
{
    const struct address from = call->operand[FETCH_X].at, to = call->operand[FETCH_Y].at;
    const size_t bytes = operand_bytes(&call->operand[FETCH_X]);
    const char *what = op_declaration(call->kind)->name;
    const cl_command_queue queue = cl->async[op_declaration(call->kind)->queue];
    struct opencl_copy *copy = cl->copy;
    cl_event forked = NULL;
    if (cl->is_dry)
        return GT_OK;
    while (copy->call != NULL && copy < cl->copy + OPENCL_COPIES_MAX - 1)
        copy++;
    assert(copy->call == NULL);
    CL_TRY(cl, what, cl->api.clEnqueueMarkerWithWaitList(cl->queue, 0, NULL, &forked));
    CL_TRY(cl, what, cl->api.clFlush(cl->queue));
    const cl_int code = cl->api.clEnqueueCopyBuffer(
        queue, opencl_segment_at(cl, from, bytes)->memory, opencl_segment_at(cl, to, bytes)->memory,
        (size_t)from.offset_bytes, (size_t)to.offset_bytes, bytes, 1, &forked, &copy->done);
    (void)cl->api.clReleaseEvent(forked);
    CL_TRY(cl, what, code);
    copy->call = call;
    CL_TRY(cl, what, cl->api.clFlush(queue));
    return GT_OK;
}

static enum gt_status copy_await(struct opencl_backend *cl, const struct op_call *wait)
{
    struct opencl_copy *copy = cl->copy;
    while (copy < cl->copy + OPENCL_COPIES_MAX &&
           (copy->call == NULL || !op_waits_for(wait, copy->call)))
        copy++;
    if (copy == cl->copy + OPENCL_COPIES_MAX)
        return GT_OK; /* nothing runs yet */
    copy->call = NULL;
    const cl_int code = cl->api.clEnqueueBarrierWithWaitList(cl->queue, 1, &copy->done, NULL);
    (void)cl->api.clReleaseEvent(copy->done);
    CL_TRY(cl, "waiting for a copy", code);
    return GT_OK;
}

/* The driver copies between equal dtypes. */
static enum gt_status copied_run(struct opencl_backend *cl, const struct op_call *call)
{
    const bool accumulates = op_accumulates(call, COPY_Y);
    const struct operand *x = &call->operand[COPY_X], *y = &call->operand[COPY_Y];
    const size_t bytes = operand_bytes(x);
    if (!accumulates && x->dtype == y->dtype && cl->is_dry)
        return GT_OK;
    if (!accumulates && x->dtype == y->dtype) {
        CL_TRY(cl, "copy",
               cl->api.clEnqueueCopyBuffer(cl->queue, opencl_segment_at(cl, x->at, bytes)->memory,
                                           opencl_segment_at(cl, y->at, bytes)->memory,
                                           (size_t)x->at.offset_bytes, (size_t)y->at.offset_bytes,
                                           bytes, 0, NULL, NULL));
        return GT_OK;
    }
    return elements_run(cl, call, KERNEL(elementwise, "gt_copy", "tt"), VALUES(I32(accumulates)));
}

OPENCL_OP(copy, cl, call, copied_run(cl, call))
const struct opencl_op opencl_fetch = {.run = move_run}, opencl_store = {.run = move_run};
const struct opencl_op opencl_wait = {.run = copy_await},
                       opencl_exchange = {.run = NULL}; /* exec runs it */

OPENCL_OP(residual, cl, call,
          elements_run(cl, call, KERNEL(elementwise, "gt_residual", "ttt"), NO_VALUES))
OPENCL_OP_EXACT(blend, cl, call,
                elements_run(cl, call, KERNEL(elementwise, "gt_blend", "ttt"),
                             VALUES(F32(call->attrs.alpha), F32(call->attrs.beta))))
OPENCL_OP_EXACT(sum_parts, cl, call,
                elements_run(cl, call, KERNEL(elementwise, "gt_sum_parts", "ttt"),
                             VALUES(I32(call->attrs.from),
                                    I32(call->operand[SUM_PARTS_OTHERS].present
                                            ? call->operand[SUM_PARTS_OTHERS].dims[0] + 1
                                            : 1),
                                    I32(op_accumulates(call, SUM_PARTS_Y)))))
OPENCL_OP(gelu_forward, cl, call,
          elements_run(cl, call, KERNEL(gelu, "gt_gelu_forward", "tt"),
                       VALUES(I32(call->attrs.gelu))))
OPENCL_OP(gelu_backward, cl, call,
          elements_run(cl, call, KERNEL(gelu, "gt_gelu_backward", "ttt"),
                       VALUES(I32(call->attrs.gelu))))

/* Runs one work-item per column of operand `y`. */
static enum gt_status swiglu_run(struct opencl_backend *cl, const struct op_call *call,
                                 const char *name, const char *forms, int32_t y)
{
    const int64_t columns = op_columns(call, y);
    return columns_run(cl, call, KERNEL(gelu, name, forms),
                       VALUES(I32(call->attrs.gate), I64(columns)),
                       size_ceil_div(columns, ITEM_ELEMENTS), op_rows(call, y), 0.0);
}

OPENCL_OP(swiglu_forward, cl, call,
          swiglu_run(cl, call, "gt_swiglu_forward", "tt", SWIGLU_FORWARD_Y))
OPENCL_OP(swiglu_backward, cl, call,
          swiglu_run(cl, call, "gt_swiglu_backward", "ttt", SWIGLU_BACKWARD_DY))

/* The threshold and the scale come from op.h,
 * so masks are the same in every backend. */
static enum gt_status masks_run(struct opencl_backend *cl, const struct op_call *call)
{
    const struct op_attrs *attrs = &call->attrs;
    const int64_t elements = attrs->time * op_columns(call, DROPOUT_X); /* of a sample */
    return columns_run(cl, call, KERNEL(elementwise, "gt_dropout", "tat"),
                       VALUES(I32(attrs->site), U32(dropout_threshold(attrs->dropout)),
                              F32(dropout_scale(attrs->dropout)), I64(elements)),
                       size_ceil_div(elements, ITEM_ELEMENTS),
                       op_elements(call, DROPOUT_X) / elements, 0.0);
}

OPENCL_OP(dropout, cl, call, masks_run(cl, call))

/* ---- embeddings ---- */

OPENCL_OP(embed_forward, cl, call,
          columns_run(cl, call, KERNEL(embed, "gt_embed_forward", "attata"),
                      VALUES(I32(call->operand[EMBED_FORWARD_FIRST].present), I32(call->attrs.time),
                             I64(op_columns(call, EMBED_FORWARD_Y))),
                      op_columns(call, EMBED_FORWARD_Y), op_rows(call, EMBED_FORWARD_Y), 0.0))

/* Only the device knows the number of distinct ids in a micro-batch, so their kernel is launched
 * for the maximum. */
static enum gt_status embed_gradients_run(struct opencl_backend *cl, const struct op_call *call)
{
    const int64_t rows = op_rows(call, EMBED_BACKWARD_DY),
                  channels = op_columns(call, EMBED_BACKWARD_DY);
    const int32_t time = call->attrs.time;
    TRY(columns_run(cl, call, KERNEL(embed, "gt_embed_backward_tokens", "taaat"),
                    VALUES(I64(channels)), channels,
                    min_i64(rows, op_rows(call, EMBED_BACKWARD_DWTE)), 0.0));
    if (!call->operand[EMBED_BACKWARD_DWPE].present)
        return GT_OK;
    return columns_run(cl, call, KERNEL(embed, "gt_embed_backward_positions", "t----ta"),
                       VALUES(I32(call->operand[EMBED_BACKWARD_FIRST].present), I32(time),
                              I32(op_accumulates(call, EMBED_BACKWARD_DWPE)), I64(rows / time),
                              I64(channels)),
                       channels, op_rows(call, EMBED_BACKWARD_DWPE), 0.0);
}

OPENCL_OP(embed_backward, cl, call, embed_gradients_run(cl, call))

/* ---- sums over rows, divided into parts by their shape alone ---- */

struct parts {
    int64_t rows, parts, part_rows; /* parts * part_rows >= rows; no part is empty */
};

static struct parts parts_of(int64_t rows)
{
    const int64_t wanted = min_i64(size_ceil_div(rows, PART_ROWS), ROW_PARTS_MAX);
    const int64_t part_rows = size_ceil_div(rows, wanted);
    return (struct parts){
        .rows = rows, .parts = size_ceil_div(rows, part_rows), .part_rows = part_rows};
}

/* Returns the number of floats in the sums of all parts, of the operand in slot 0. */
static int64_t parts_elements(const struct op_call *call)
{
    return parts_of(call->operand[0].dims[0]).parts * call->operand[0].dims[1];
}

/* Sums the floats [parts, columns], which begin at element `first` of the workspace, over the
 * parts.  Stores the sums in operand `out`, or adds them to it if the op accumulates. */
static enum gt_status parts_sum(struct opencl_backend *cl, const struct op_call *call,
                                int64_t first, int64_t parts, int32_t out)
{
    struct opencl_launch launch =
        group_begin(cl, call, KERNEL(layernorm, "gt_columns_sum", "w"), NO_VALUES);
    opencl_arg_tensor(&launch, call, out);
    opencl_arg_values(&launch, VALUES(I32(op_accumulates(call, out)), I64(first), I64(parts)));
    return elements_launch(&launch, op_elements(call, out), 1);
}

static double flops_of(const int64_t *dims)
{
    return FLOPS_PER_ELEMENT * (double)dims[0] * (double)dims[1];
}

static enum gt_status norm_run(struct opencl_backend *cl, const struct op_call *call)
{
    const int64_t *dims = call->operand[LAYERNORM_FORWARD_X].dims;
    return groups_run(cl, call, KERNEL(layernorm, "gt_layernorm_forward", "tttatt"),
                      VALUES(F32(call->attrs.epsilon), F32(call->attrs.gain_offset), I64(dims[1])),
                      dims[0], flops_of(dims));
}

/* The workspace has the sums of dgain, followed by those of dbias where there is a mean.  dx comes
 * last: it may be the same memory as dy, which the sums over rows read. */
static enum gt_status norm_gradients_run(struct opencl_backend *cl, const struct op_call *call)
{
    const int64_t *dims = call->operand[LAYERNORM_BACKWARD_DY].dims;
    const struct parts parts = parts_of(dims[0]);
    TRY(columns_run(cl, call, KERNEL(layernorm, "gt_layernorm_backward_partial", "tt-a---tw"),
                    VALUES(I64(parts.rows), I64(parts.part_rows), I64(parts.parts), I64(dims[1])),
                    dims[1], parts.parts, flops_of(dims)));
    if (call->operand[LAYERNORM_BACKWARD_DGAIN].present)
        TRY(parts_sum(cl, call, 0, parts.parts, LAYERNORM_BACKWARD_DGAIN));
    if (call->operand[LAYERNORM_BACKWARD_DBIAS].present)
        TRY(parts_sum(cl, call, parts_elements(call), parts.parts, LAYERNORM_BACKWARD_DBIAS));
    return groups_run(cl, call, KERNEL(layernorm, "gt_layernorm_backward", "tttat--t"),
                      VALUES(F32(call->attrs.gain_offset),
                             I32(op_accumulates(call, LAYERNORM_BACKWARD_DX)), I64(dims[1])),
                      dims[0], flops_of(dims));
}

#define NORM_FLOATS \
    ((call->operand[LAYERNORM_BACKWARD_MEAN].present ? 2 : 1) * parts_elements(call))
OPENCL_OP(layernorm_forward, cl, call, norm_run(cl, call))
OPENCL_OP(rmsnorm_forward, cl, call, norm_run(cl, call))
OPENCL_OP_WITH(layernorm_backward, NULL, cl, call, NORM_FLOATS, norm_gradients_run(cl, call))
OPENCL_OP_WITH(rmsnorm_backward, NULL, cl, call, NORM_FLOATS, norm_gradients_run(cl, call))

static enum gt_status bias_sum_run(struct opencl_backend *cl, const struct op_call *call)
{
    const int64_t *dims = call->operand[BIAS_BACKWARD_DY].dims;
    const struct parts parts = parts_of(dims[0]);
    TRY(columns_run(cl, call, KERNEL(layernorm, "gt_bias_backward_partial", "t-w"),
                    VALUES(I64(parts.rows), I64(parts.part_rows), I64(dims[1])), dims[1],
                    parts.parts, (double)dims[0] * (double)dims[1]));
    return parts_sum(cl, call, 0, parts.parts, BIAS_BACKWARD_DBIAS);
}

OPENCL_OP_WITH(bias_backward, NULL, cl, call, parts_elements(call), bias_sum_run(cl, call))

/* ---- rope ---- */

/* The workspace has two statistics of each mean, then, in the backward pass, the parts' sums of
 * dgain. */
static int64_t rope_floats(const struct op_call *call)
{
    const int64_t rows = op_rows(call, op_rope_rows(call));
    const bool has_sums = call->operand[ROPE_BACKWARD_DGAIN].present;
    return 2 * rows * op_rope_means(call) +
           (has_sums ? parts_of(rows).parts * op_elements(call, ROPE_BACKWARD_DGAIN) : 0);
}

#define ROPE_VALUES                                                                             \
    I64(op_rope_size(call)), I64(op_columns(call, ROPE_FORWARD_TABLE)), I64(call->attrs.heads), \
        I64(call->attrs.kv_heads), I64(op_rope_means(call)), I64(call->attrs.time),             \
        I32(call->attrs.gated)

/* Computes the statistics, if there are gains, then y or dx, then dgain. */
static enum gt_status turn_run(struct opencl_backend *cl, const struct op_call *call)
{
    const bool is_backward = call->kind == OP_ROPE_BACKWARD;
    const int32_t slot = op_rope_rows(call);
    const int64_t rows = op_rows(call, slot), size = op_rope_size(call);
    const int64_t pairs = ((int64_t)call->attrs.heads + call->attrs.kv_heads) * size / 2;
    const int64_t gains = op_elements(call, ROPE_FORWARD_GAIN);
    const double flops = FLOPS_PER_ELEMENT * (double)op_elements(call, slot);
    const struct parts parts = parts_of(rows);
    if (gains > 0)
        TRY(groups_run(cl, call, KERNEL(rope, "gt_rope_statistics", "taatttw"),
                       VALUES(ROPE_VALUES, F32(call->attrs.epsilon), F32(call->attrs.gain_offset)),
                       rows * op_rope_means(call), flops));
    TRY(columns_run(cl, call, KERNEL(rope, "gt_rope", "taatttw"),
                    VALUES(ROPE_VALUES, I32(is_backward), F32(call->attrs.gain_offset)),
                    op_rope_in_place(call) ? pairs : pairs + call->attrs.kv_heads * size, rows,
                    flops));
    if (!is_backward || gains == 0)
        return GT_OK;
    TRY(columns_run(cl, call, KERNEL(rope, "gt_rope_gain_partial", "taa--tw"),
                    VALUES(ROPE_VALUES, I64(rows), I64(parts.part_rows), I64(gains)), gains,
                    parts.parts, flops));
    return parts_sum(cl, call, 2 * rows * op_rope_means(call), parts.parts, ROPE_BACKWARD_DGAIN);
}

OPENCL_OP_WITH(rope_forward, NULL, cl, call, rope_floats(call), turn_run(cl, call))
OPENCL_OP_WITH(rope_backward, NULL, cl, call, rope_floats(call), turn_run(cl, call))

/* ---- gates ---- */

/* The workspace has r of each head, then the parts' sums of dgain. */
static int64_t gate_floats(const struct op_call *call)
{
    const int64_t rows = op_rows(call, GATE_BACKWARD_X),
                  gains = op_elements(call, GATE_BACKWARD_GAIN);
    return gains > 0 ? rows * call->attrs.heads + parts_of(rows).parts * gains : 0;
}

#define GATE_SIZE (op_columns(call, GATE_FORWARD_X) / call->attrs.heads)
#define GATE_VALUES                                                \
    I32(call->attrs.gate), I64(call->attrs.heads), I64(GATE_SIZE), \
        I64(op_columns(call, GATE_FORWARD_Z)), F32(call->attrs.epsilon)

static enum gt_status gate_gradients_run(struct opencl_backend *cl, const struct op_call *call)
{
    const int64_t rows = op_rows(call, GATE_BACKWARD_X), heads = rows * call->attrs.heads;
    const double flops = FLOPS_PER_ELEMENT * (double)op_elements(call, GATE_BACKWARD_X);
    const struct parts parts = parts_of(rows);
    TRY(groups_run(cl, call, KERNEL(gate, "gt_gate_backward", "tttttt-w"),
                   VALUES(GATE_VALUES, I32(op_accumulates(call, GATE_BACKWARD_DZ))), heads, flops));
    if (!call->operand[GATE_BACKWARD_GAIN].present)
        return GT_OK;
    TRY(columns_run(cl, call, KERNEL(gate, "gt_gate_gain_partial", "tttt---w"),
                    VALUES(GATE_VALUES, I64(rows), I64(parts.part_rows)), GATE_SIZE, parts.parts,
                    flops));
    return parts_sum(cl, call, heads, parts.parts, GATE_BACKWARD_DGAIN);
}

OPENCL_OP(gate_forward, cl, call,
          groups_run(cl, call, KERNEL(gate, "gt_gate_forward", "tttt"), VALUES(GATE_VALUES),
                     op_rows(call, GATE_FORWARD_X) * call->attrs.heads,
                     FLOPS_PER_ELEMENT *(double)op_elements(call, GATE_FORWARD_X)))
OPENCL_OP_WITH(gate_backward, NULL, cl, call, gate_floats(call), gate_gradients_run(cl, call))

/* ---- the gated delta net ---- */

#define CONV_VALUES                                                           \
    I64(call->attrs.time), I64(op_columns(call, SHORT_CONV_FORWARD_X)),       \
        I64(op_elements(call, SHORT_CONV_FORWARD_WEIGHT) / call->attrs.taps), \
        I32(call->attrs.taps)

static enum gt_status conv_run(struct opencl_backend *cl, const struct op_call *call,
                               const char *name, const char *forms, int64_t rows)
{
    return columns_run(cl, call, KERNEL(delta, name, forms), VALUES(CONV_VALUES),
                       op_columns(call, SHORT_CONV_FORWARD_X), rows, op_flops(call));
}

static enum gt_status conv_gradients_run(struct opencl_backend *cl, const struct op_call *call)
{
    const int64_t rows = op_rows(call, SHORT_CONV_BACKWARD_DY);
    const struct parts parts = parts_of(rows);
    TRY(conv_run(cl, call, "gt_short_conv_backward", "ttttt", rows));
    TRY(columns_run(cl, call, KERNEL(delta, "gt_short_conv_partial", "tttt--w"),
                    VALUES(CONV_VALUES, I64(rows), I64(parts.part_rows)),
                    op_elements(call, SHORT_CONV_BACKWARD_WEIGHT) / call->attrs.taps, parts.parts,
                    op_flops(call)));
    return parts_sum(cl, call, 0, parts.parts, SHORT_CONV_BACKWARD_DWEIGHT);
}

OPENCL_OP(short_conv_forward, cl, call,
          conv_run(cl, call, "gt_short_conv_forward", "tttt", op_rows(call, SHORT_CONV_FORWARD_X)))
OPENCL_OP(short_conv_cached, cl, call,
          conv_run(cl, call, "gt_short_conv_cached", "ttatt",
                   op_rows(call, SHORT_CONV_CACHED_X) / call->attrs.time))
OPENCL_OP_WITH(short_conv_backward, NULL, cl, call,
               parts_of(op_rows(call, 0)).parts *op_elements(call, SHORT_CONV_BACKWARD_WEIGHT),
               conv_gradients_run(cl, call))

/* The forward pass has one group per head of a sample, the backward pass one per key head. */
static int64_t delta_groups(const struct op_call *call)
{
    const int64_t samples = op_rows(call, GATED_DELTA_FORWARD_X) / call->attrs.time;
    return samples *
           (call->kind == OP_GATED_DELTA_BACKWARD ? call->attrs.kv_heads : call->attrs.heads);
}

static int64_t delta_floats(const struct op_call *call)
{
    const int64_t size = op_delta_size(call, GATED_DELTA_FORWARD_X), heads = call->attrs.heads;
    if (call->kind != OP_GATED_DELTA_BACKWARD)
        return delta_groups(call) * DELTA_FORWARD_FLOATS(size);
    return op_rows(call, GATED_DELTA_BACKWARD_X) / call->attrs.time * 2 * heads +
           delta_groups(call) * DELTA_BACKWARD_FLOATS(size, heads / call->attrs.kv_heads);
}

#define DELTA_VALUES                                                                \
    I64(call->attrs.time), I64(op_delta_chunks(call)), I32(call->attrs.heads),      \
        I32(call->attrs.kv_heads), I32(op_delta_size(call, GATED_DELTA_FORWARD_X)), \
        I32(op_columns(call, GATED_DELTA_FORWARD_X))

static enum gt_status delta_run(struct opencl_backend *cl, const struct op_call *call,
                                const char *name, const char *forms)
{
    return groups_run(cl, call, KERNEL(delta, name, forms), VALUES(DELTA_VALUES),
                      delta_groups(call), op_flops(call));
}

static enum gt_status delta_gradients_run(struct opencl_backend *cl, const struct op_call *call)
{
    const int64_t samples = op_rows(call, GATED_DELTA_BACKWARD_X) / call->attrs.time;
    TRY(groups_run(cl, call, KERNEL(delta, "gt_gated_delta_backward", "tttatt-w"),
                   VALUES(DELTA_VALUES, I64(samples)), delta_groups(call), op_flops(call)));
    return parts_sum(cl, call, 0, samples, GATED_DELTA_BACKWARD_DDECAY);
}

OPENCL_OP_WITH(gated_delta_forward, NULL, cl, call, delta_floats(call),
               delta_run(cl, call, "gt_gated_delta_forward", "tttatw"))
OPENCL_OP_WITH(gated_delta_cached, NULL, cl, call, delta_floats(call),
               delta_run(cl, call, "gt_gated_delta_cached", "ttaatw"))
OPENCL_OP_WITH(gated_delta_backward, NULL, cl, call, delta_floats(call),
               delta_gradients_run(cl, call))

/* ---- the loss ---- */

OPENCL_OP(cross_entropy, cl, call,
          groups_run(cl, call, KERNEL(cross_entropy, "gt_cross_entropy", "aata"),
                     VALUES(I32(call->attrs.gradient), I64(call->attrs.vocab),
                            I64(op_columns(call, CROSS_ENTROPY_LOGITS))),
                     op_rows(call, CROSS_ENTROPY_LOGITS),
                     FLOPS_PER_LOGIT *(double)op_elements(call, CROSS_ENTROPY_LOGITS)))
OPENCL_OP(loss_sum, cl, call,
          groups_run(cl, call, KERNEL(norm, "gt_sum", "aa"),
                     VALUES(I64(SCALAR_LOSS_SUM), I32(true),
                            I64(op_elements(call, LOSS_SUM_LOSSES))),
                     1, 0.0))

/* ---- an update ---- */

/* The number of parts of sum_of_squares, and therefore the order of the sum, follows from the
 * shape. */
static int64_t square_parts(const struct op_call *call)
{
    return min_i64(size_ceil_div(op_elements(call, SUM_OF_SQUARES_X), SQUARE_PART_ELEMENTS),
                   SQUARE_PARTS_MAX);
}

static enum gt_status squares_run(struct opencl_backend *cl, const struct op_call *call)
{
    const int64_t count = op_elements(call, SUM_OF_SQUARES_X), parts = square_parts(call);
    TRY(groups_run(cl, call, KERNEL(norm, "gt_sum_of_squares", "tw"),
                   VALUES(I64(size_ceil_div(count, parts)), I64(count)), parts,
                   2.0 * (double)count));
    return groups_run(cl, call, KERNEL(norm, "gt_sum", "w-a"),
                      VALUES(I64(0), I32(false), I64(parts)), 1, 0.0);
}

/* GT_ADAMW_VALUES of the kernels. */
#define ADAMW_VALUES(corrections)                                           \
    F32(call->attrs.alpha), F32(call->attrs.beta1), F32(call->attrs.beta2), \
        F32(call->attrs.epsilon), F32(call->attrs.weight_decay), I64(op_rows(call, corrections))

OPENCL_OP_WITH(sum_of_squares, NULL, cl, call, square_parts(call), squares_run(cl, call))
OPENCL_OP(clip_factor, cl, call,
          groups_run(cl, call, KERNEL(norm, "gt_clip_factor", "aa"),
                     VALUES(F32(call->attrs.clip_max),
                            I64(op_elements(call, CLIP_FACTOR_PARTIALS))),
                     1, 0.0))
OPENCL_OP_EXACT(gradient_round, cl, call,
                blocks_run(cl, call, KERNEL(muon, "gt_gradient_round", "aaa"),
                           VALUES(I32(op_accumulates(call, GRADIENT_ROUND_Y)))))
OPENCL_OP(adamw, cl, call,
          elements_run(cl, call, KERNEL(norm, "gt_adamw", "taatttt"),
                       VALUES(ADAMW_VALUES(ADAMW_CORRECTIONS))))
OPENCL_OP_EXACT(adamw_lean, cl, call,
                blocks_run(cl, call, KERNEL(adamw_lean, "gt_adamw_lean", "taaatta"),
                           VALUES(ADAMW_VALUES(ADAMW_LEAN_CORRECTIONS),
                                  I64(state_blocks(op_elements(call, ADAMW_LEAN_GRAD))))))
OPENCL_OP_EXACT(muon_momentum, cl, call,
                blocks_run(cl, call, KERNEL(muon, "gt_muon_momentum", "tata"), NO_VALUES))
OPENCL_OP_EXACT(muon_normalize, cl, call,
                elements_run(cl, call, KERNEL(muon, "gt_muon_normalize", "tat"), NO_VALUES))
OPENCL_OP_EXACT(muon_step, cl, call,
                blocks_run(cl, call, KERNEL(muon, "gt_muon_step", "tatt"),
                           VALUES(F32(call->attrs.alpha), F32(call->attrs.value),
                                  F32(call->attrs.weight_decay))))
