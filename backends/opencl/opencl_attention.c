/* attention_forward and attention_cached: one kernel, which reads keys and values from rows of qkv or from the cache.
 *
 * See kernels/attention_forward.cl.  There is no workspace: tiles are in local memory.  attention_cached appends the
 * new rows to the cache first.
 */
#include "backends/opencl/opencl_attention.h"

#define QUERIES 32 /* queries per group: GT_QUERIES */

/* The layout of keys and values, in elements of the operand `slot`. */
struct keys_at {
    int32_t slot;
    bool cached;
    int64_t row, sample, k_first, v_first, keys; /* keys: an upper bound, for the cost */
};

static bool attention_forward_supports(const struct backend *backend, const struct op_call *call)
{
    return opencl_attention_fits(backend, call, ATTENTION_FORWARD_QKV);
}

static bool attention_cached_supports(const struct backend *backend, const struct op_call *call)
{
    return opencl_attention_fits(backend, call, ATTENTION_CACHED_QKV);
}

static enum gt_status forward_launch(struct backend *backend, const struct op_call *call, const struct keys_at *at)
{
    struct opencl_launch launch;
    const int32_t qkv = at->cached ? (int32_t)ATTENTION_CACHED_QKV : (int32_t)ATTENTION_FORWARD_QKV;
    const int32_t scalars = at->cached ? (int32_t)ATTENTION_CACHED_SCALARS : (int32_t)ATTENTION_FORWARD_SCALARS;
    const int32_t y = at->cached ? (int32_t)ATTENTION_CACHED_Y : (int32_t)ATTENTION_FORWARD_Y;
    const struct opencl_attention_shape shape = opencl_attention_shape_of(call, qkv);
    const float dropout = at->cached ? 0.0f : call->attrs.dropout;
    const int64_t groups = shape.samples * shape.heads * ((shape.time + QUERIES - 1) / QUERIES);
    opencl_launch_begin(&launch, backend, &opencl_source_attention_forward, shape.options, "gt_attention_forward");
    opencl_arg_tensor(&launch, call, qkv);
    opencl_arg_tensor(&launch, call, at->slot);
    opencl_arg_operand(&launch, call, scalars);
    opencl_arg_tensor(&launch, call, y);
    opencl_arg_operand(&launch, call, at->cached ? y : (int32_t)ATTENTION_FORWARD_LSE); /* not written when cached */
    opencl_arg_i32(&launch, at->cached);
    opencl_arg_i32(&launch, (int32_t)shape.time);
    opencl_arg_i32(&launch, (int32_t)shape.heads);
    opencl_arg_i32(&launch, (int32_t)(shape.heads / shape.kv_heads));
    opencl_arg_i32(&launch, (int32_t)shape.head_size);
    opencl_arg_i64(&launch, shape.row);
    opencl_arg_i64(&launch, at->row);
    opencl_arg_i64(&launch, at->sample);
    opencl_arg_i64(&launch, at->k_first);
    opencl_arg_i64(&launch, at->v_first);
    opencl_arg_f32(&launch, call->attrs.softmax_scale);
    opencl_arg_i32(&launch, call->attrs.site);
    opencl_arg_u32(&launch, dropout_threshold(dropout));
    opencl_arg_f32(&launch, dropout_scale(dropout));
    return opencl_attention_launch(&launch, groups,
                                   4.0 * (double)groups * QUERIES * (double)at->keys * (double)shape.head_size);
}

static enum gt_status attention_forward_run(struct backend *backend, int32_t queue, const struct op_call *call)
{
    const struct opencl_attention_shape shape = opencl_attention_shape_of(call, ATTENTION_FORWARD_QKV);
    const struct keys_at at = {
        .slot = ATTENTION_FORWARD_QKV,
        .row = shape.row,
        .sample = shape.time * shape.row,
        .k_first = shape.heads * shape.head_size,
        .v_first = (shape.heads + shape.kv_heads) * shape.head_size,
        .keys = shape.time,
    };
    (void)queue;
    return forward_launch(backend, call, &at);
}

static enum gt_status append_launch(struct backend *backend, const struct op_call *call)
{
    struct opencl_launch launch;
    const struct opencl_attention_shape shape = opencl_attention_shape_of(call, ATTENTION_CACHED_QKV);
    const int64_t width = shape.kv_heads * shape.head_size;
    opencl_launch_begin(&launch, backend, &opencl_source_attention_forward, shape.options, "gt_attention_append");
    opencl_arg_tensor(&launch, call, ATTENTION_CACHED_QKV);
    opencl_arg_operand(&launch, call, ATTENTION_CACHED_SCALARS);
    opencl_arg_tensor(&launch, call, ATTENTION_CACHED_CACHE);
    opencl_arg_i32(&launch, (int32_t)shape.time);
    opencl_arg_i64(&launch, shape.row);
    opencl_arg_i64(&launch, shape.heads * shape.head_size);
    opencl_arg_i64(&launch, width);
    opencl_arg_i64(&launch, call->operand[ATTENTION_CACHED_CACHE].dims[2]);
    opencl_arg_i64(&launch, shape.samples);
    return opencl_run_columns(&launch, 2 * width, shape.samples * shape.time, 0.0);
}

static enum gt_status attention_cached_run(struct backend *backend, int32_t queue, const struct op_call *call)
{
    const struct opencl_attention_shape shape = opencl_attention_shape_of(call, ATTENTION_CACHED_QKV);
    const int64_t width = shape.kv_heads * shape.head_size, capacity = call->operand[ATTENTION_CACHED_CACHE].dims[2];
    const struct keys_at at = {
        .slot = ATTENTION_CACHED_CACHE,
        .cached = true,
        .row = width,
        .sample = capacity * width,
        .v_first = shape.samples * capacity * width,
        .keys = capacity,
    };
    (void)queue;
    TRY(append_launch(backend, call));
    return forward_launch(backend, call, &at);
}

const struct op_impl opencl_attention_forward = {.supports = attention_forward_supports, .run = attention_forward_run};
const struct op_impl opencl_attention_cached = {.supports = attention_cached_supports, .run = attention_cached_run};
