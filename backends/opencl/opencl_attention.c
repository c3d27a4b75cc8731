/* attention_forward and attention_cached: one kernel, which reads keys and values from rows of qkv
 * or from the cache. attention_backward: delta, then dk and dv by tiles of keys, then dq by tiles
 * of queries.
 *
 * See kernels/attention_forward.cl and attention_backward.cl; their options follow from the head
 * size. attention_cached appends the new rows to the cache first.  The backward pass has delta, one
 * float per row and head, in the workspace.
 */
#include "backends/opencl/opencl_launch.h"

#define ITEMS 64 /* work-items per group */

/* How the kernels are compiled for heads of up to `size` columns: GT_SLICES of `options` are
 * columns of a head per work-item, `queries` those of a group of the forward pass (GT_QUERIES),
 * `wide` the rows of the backward pass's tiles (GT_WIDE).  local_bytes is an upper bound of the
 * tiles' local memory.  Every full-profile device has 32 KiB of local memory. */
static const struct instance {
    int64_t size, queries, wide;
    size_t local_bytes;
    const char *options;
} instances[] = {
    {64, 32, 32, 30720, "-DGT_SLICES=8"},
    {128, 32, 16, 30720, "-DGT_SLICES=16"},
    {256, 16, 8, 34816, "-DGT_SLICES=32"},
};
#define INSTANCES (sizeof instances / sizeof instances[0])

struct shape {
    int64_t samples, time, heads, kv_heads;
    int64_t head_size, row; /* row: elements in a row of qkv */
    const struct instance *instance;
};

/* Returns the smallest instance for heads of `size` columns, NULL if there is none. */
static const struct instance *instance_for(int64_t size)
{
    for (size_t i = 0; i < INSTANCES; i++)
        if (size <= instances[i].size)
            return &instances[i];
    return NULL;
}

/* `qkv` is the operand's slot. */
static struct shape shape_of(const struct op_call *call, int32_t qkv)
{
    const int64_t *dims = call->operand[qkv].dims;
    const int64_t heads = call->attrs.heads, kv_heads = call->attrs.kv_heads,
                  size = dims[1] / (heads + 2 * kv_heads);
    return (struct shape){
        .samples = dims[0] / call->attrs.time,
        .time = call->attrs.time,
        .heads = heads,
        .kv_heads = kv_heads,
        .head_size = size,
        .row = dims[1],
        .instance = instance_for(size),
    };
}

static bool attention_supports(const struct opencl_backend *cl, const struct op_call *call)
{
    const struct opencl_device *device = &cl->device;
    const int32_t qkv = call->kind == OP_ATTENTION_BACKWARD ? ATTENTION_BACKWARD_QKV : 0;
    const struct instance *instance = shape_of(call, qkv).instance;
    return instance != NULL && device->local_bytes >= instance->local_bytes &&
           device->work_group_max >= ITEMS;
}

/* The layout of keys and values, in elements of the operand `slot`. */
struct keys_at {
    int32_t slot;
    int64_t row, sample, k_first, v_first;
    int64_t ring; /* rows of a sample; later keys start again at its first row */
    int64_t keys; /* an upper bound, for the cost */
};

/* qkv and scalars are operands 0 and 1 of both ops. */
static enum gt_status forward_launch(struct opencl_backend *cl, const struct op_call *call,
                                     const struct shape *shape, const struct keys_at *at)
{
    struct opencl_launch launch;
    const struct op_attrs *attrs = &call->attrs;
    const bool cached = call->kind == OP_ATTENTION_CACHED;
    const float dropout = cached ? 0.0f : attrs->dropout;
    const int64_t queries = shape->instance->queries;
    const int64_t groups = shape->samples * shape->heads * ((shape->time + queries - 1) / queries);
    opencl_launch_begin(&launch, cl, &opencl_source_attention_forward, shape->instance->options,
                        "gt_attention_forward");
    opencl_arg_tensor(&launch, call, at->slot);
    /* No lse and first when cached: they are NULL. */
    opencl_arg_operands(&launch, call, cached ? "ta-taa" : "tataa");
    opencl_arg_values(
        &launch, VALUES(I32(cached), I32(!cached && call->operand[ATTENTION_FORWARD_FIRST].present),
                        I32(attrs->window), I32(at->ring), I32(shape->time), I32(shape->heads),
                        I32(shape->heads / shape->kv_heads), I32(shape->head_size), I64(shape->row),
                        I64(at->row), I64(at->sample), I64(at->k_first), I64(at->v_first),
                        F32(attrs->softmax_scale), I32(attrs->site),
                        U32(dropout_threshold(dropout)), F32(dropout_scale(dropout))));
    return opencl_launch_run(&launch, groups, ITEMS,
                             4.0 * (double)(groups * queries) * (double)at->keys *
                                 (double)shape->head_size);
}

static enum gt_status attention_forward_run(struct opencl_backend *cl, const struct op_call *call)
{
    const struct shape shape = shape_of(call, ATTENTION_FORWARD_QKV);
    const struct keys_at at = {
        .slot = ATTENTION_FORWARD_QKV,
        .row = shape.row,
        .sample = shape.time * shape.row,
        .k_first = shape.heads * shape.head_size,
        .v_first = (shape.heads + shape.kv_heads) * shape.head_size,
        .ring = shape.time,
        .keys = shape.time,
    };
    return forward_launch(cl, call, &shape, &at);
}

static enum gt_status attention_cached_run(struct opencl_backend *cl, const struct op_call *call)
{
    struct opencl_launch launch;
    const struct shape shape = shape_of(call, ATTENTION_CACHED_QKV);
    const int64_t width = shape.kv_heads * shape.head_size,
                  capacity = call->operand[ATTENTION_CACHED_CACHE].dims[2];
    const struct keys_at at = {
        .slot = ATTENTION_CACHED_CACHE,
        .row = width,
        .sample = capacity * width,
        .v_first = shape.samples * capacity * width,
        .ring = capacity,
        .keys = op_cache_keys(call),
    };
    opencl_launch_begin(&launch, cl, &opencl_source_attention_forward, shape.instance->options,
                        "gt_attention_append");
    opencl_arg_operands(&launch, call, "tat");
    opencl_arg_values(&launch,
                      VALUES(I32(shape.time), I64(shape.row), I64(shape.heads * shape.head_size),
                             I64(width), I64(capacity), I64(shape.samples)));
    TRY(opencl_launch_columns(&launch, 2 * width, shape.samples * shape.time, 0.0));
    return forward_launch(cl, call, &shape, &at);
}

static size_t attention_backward_workspace_bytes(const struct opencl_backend *cl,
                                                 const struct op_call *call)
{
    (void)cl;
    return (size_t)op_elements(call, ATTENTION_BACKWARD_LSE) * sizeof(float);
}

/* Launches the kernel by keys or by queries, with one group per tile and head of the keys or
 * queries. */
static enum gt_status tiles_run(struct opencl_backend *cl, const struct op_call *call,
                                const struct shape *shape, bool by_keys)
{
    struct opencl_launch launch;
    char options[OPENCL_OPTIONS_MAX];
    const int64_t heads = by_keys ? shape->kv_heads : shape->heads, wide = shape->instance->wide;
    const struct op_attrs *attrs = &call->attrs;
    const double squares =
        (double)shape->samples * (double)shape->heads * (double)shape->time * (double)shape->time;
    snprintf(options, sizeof options, "%s -DGT_BY_KEYS=%d", shape->instance->options, by_keys);
    opencl_launch_begin(&launch, cl, &opencl_source_attention_backward, options,
                        "gt_attention_backward");
    opencl_arg_operands(&launch, call, "tt-aataw");
    opencl_arg_values(&launch,
                      VALUES(I32(call->operand[ATTENTION_BACKWARD_FIRST].present),
                             I32(attrs->window), I32(shape->time), I32(shape->heads),
                             I32(shape->kv_heads), I32(shape->head_size), F32(attrs->softmax_scale),
                             I32(attrs->site), U32(dropout_threshold(attrs->dropout)),
                             F32(dropout_scale(attrs->dropout))));
    return opencl_launch_run(&launch, shape->samples * ((shape->time + wide - 1) / wide) * heads,
                             ITEMS, 4.0 * squares * (double)shape->head_size);
}

static enum gt_status attention_backward_run(struct opencl_backend *cl, const struct op_call *call)
{
    struct opencl_launch launch;
    const struct shape shape = shape_of(call, ATTENTION_BACKWARD_QKV);
    opencl_launch_begin(&launch, cl, &opencl_source_attention_forward, shape.instance->options,
                        "gt_attention_delta");
    opencl_arg_operands(&launch, call, "t-tw");
    opencl_arg_values(&launch, VALUES(I32(shape.time), I32(shape.heads), I32(shape.head_size)));
    TRY(opencl_launch_columns(&launch, shape.heads, shape.samples * shape.time, 0.0));
    TRY(tiles_run(cl, call, &shape, true));
    return tiles_run(cl, call, &shape, false);
}

const struct opencl_op opencl_attention_forward = {.supports = attention_supports,
                                                   .run = attention_forward_run};
const struct opencl_op opencl_attention_cached = {.supports = attention_supports,
                                                  .run = attention_cached_run};
const struct opencl_op opencl_attention_backward = {.supports = attention_supports,
                                                    .workspace_bytes =
                                                        attention_backward_workspace_bytes,
                                                    .run = attention_backward_run};
