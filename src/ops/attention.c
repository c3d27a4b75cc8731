/* attention: y = dropout(softmax(causal(q k' scale))) v.
 *                                                       Vaswani 2017; Dao et al. 2022, 2023 (flash)
 *
 * qkv is [N, (H + 2 KV) D]: a row holds q of all heads, then k, then v of all key-value heads.
 * Head h uses key-value head h / (H / KV).  A row attends to itself and the earlier rows of its
 * sample.  With s = q.k scale:
 *   lse[B,H,T] = log sum exp s,  p = exp(s - lse),  y[N, H D]
 * Dropout acts on p after normalisation.  Nothing of size T x T is ever stored.
 *
 * first[N], if present, is where the document of a row begins: row t of a sample attends to rows
 * first .. t.  It lies between 0 and t, and never decreases within a sample, so that kernels can
 * skip whole tiles.  With a window, row t also attends to no row before t - window + 1, which never
 * decreases either.
 *
 * attention_cached computes `time` new rows of each sample, at positions POSITION and up, against a
 * cache [2, B, capacity, KV D] of k, then v.  With a window the cache may be a ring: a new row
 * overwrites one that has left the window.  See op_cache_is_ring().
 */
#include "base/size.h"
#include "ops/infer.h"

/* Checks that kv_heads divides heads, and that a row of qkv splits into heads + 2 kv_heads heads of
 * equal size. Sets Y, the width of y, and B, H and T. */
static bool attention_heads_check(const struct op_call *call, int32_t slot,
                                  struct infer_sizes *sizes)
{
    const struct operand *qkv = &call->operand[slot];
    const int64_t heads = call->attrs.heads, kv_heads = call->attrs.kv_heads,
                  parts = heads + 2 * kv_heads;
    if (!infer_expect(heads >= 1 && kv_heads >= 1 && heads % kv_heads == 0, call,
                      "heads is %" PRId64 " and kv_heads %" PRId64
                      ", expected a multiple and its divisor",
                      heads, kv_heads) ||
        !infer_time(call, slot) ||
        !infer_expect(call->attrs.window >= 0, call, "window is %" PRId32 ", expected 0 or more",
                      call->attrs.window) ||
        !infer_expect(qkv->dims[1] % parts == 0, call,
                      "operand qkv has %" PRId64
                      " columns, expected a multiple of heads + 2 kv_heads = %" PRId64,
                      qkv->dims[1], parts))
        return false;
    infer_size_set(sizes, 'Y', qkv->dims[1] / parts * heads);
    infer_size_set(sizes, 'B', qkv->dims[0] / call->attrs.time);
    infer_size_set(sizes, 'H', heads);
    infer_size_set(sizes, 'T', call->attrs.time);
    return true;
}

static bool attention_forward_check(const struct op_call *call, struct infer_sizes *sizes)
{
    return attention_heads_check(call, ATTENTION_FORWARD_QKV, sizes) && infer_probability(call);
}

/* Returns 2 D for each pair of a query and a key that it attends to, from y[B T, H D]; without a
 * window there are B H T T / 2 pairs. */
static double attention_volume(const struct op_call *call, int32_t y)
{
    const double time = call->attrs.time, window = call->attrs.window;
    const double hidden = window > 0.0 && window < time ? 1.0 - window / time : 0.0;
    return cost_elements(call, y) * time * (1.0 - hidden * hidden);
}

/* Two products (scores, values): 4 D per pair of rows. */
static double attention_forward_flops(const struct op_call *call)
{
    return 2.0 * attention_volume(call, ATTENTION_FORWARD_Y);
}

const struct op_declaration op_attention_forward = {
    OP_NAMED(attention_forward, ATTENTION_FORWARD),
    .operand = {[ATTENTION_FORWARD_QKV] = {OPERAND_IN | OPERAND_SAVED, "NW"},
                [ATTENTION_FORWARD_SCALARS] = SCALARS(OPERAND_IN),
                [ATTENTION_FORWARD_Y] = {OPERAND_OUT | OPERAND_SAVED, "NY"},
                [ATTENTION_FORWARD_LSE] = {OPERAND_OUT | OPERAND_SAVED, "BHT", DTYPES_F32},
                [ATTENTION_FORWARD_FIRST] = {OPERAND_IN | OPERAND_OPTIONAL, "N", DTYPES_I32}},
    .recompute = RECOMPUTE_CLASS_ATTENTION,
    .multiplies = true,
    .check = attention_forward_check,
    .flops = attention_forward_flops,
    .backward = OP_ATTENTION_BACKWARD,
};

static bool attention_backward_check(const struct op_call *call, struct infer_sizes *sizes)
{
    const struct operand *qkv = &call->operand[ATTENTION_BACKWARD_QKV];
    if (!attention_heads_check(call, ATTENTION_BACKWARD_QKV, sizes) || !infer_probability(call))
        return false;
    const struct infer_shape y = SHAPE2(qkv->dims[0], sizes->letter['Y' - 'A']);
    return infer_check(call, ATTENTION_BACKWARD_DY, DTYPES_FLOAT, y) &&
           infer_check(call, ATTENTION_BACKWARD_Y, DTYPES_FLOAT, y) &&
           infer_check(
               call, ATTENTION_BACKWARD_LSE, DTYPES_F32,
               SHAPE3(qkv->dims[0] / call->attrs.time, call->attrs.heads, call->attrs.time));
}

/* Five products: recomputed scores, dp, dv, dk, dq. */
static double attention_backward_flops(const struct op_call *call)
{
    return 5.0 * attention_volume(call, ATTENTION_BACKWARD_Y);
}

/* A word for each element of lse, and dq in fp32, with rows and heads rounded up to tiles of 32. */
static size_t attention_backward_workspace_cap(const struct op_call *call)
{
    const struct operand *y = &call->operand[ATTENTION_BACKWARD_Y],
                         *lse = &call->operand[ATTENTION_BACKWARD_LSE];
    const int64_t time = call->attrs.time, heads = call->attrs.heads, tile = 32;
    const int64_t rows = y->dims[0] / time * size_ceil_div(time, tile) * tile;
    const int64_t dq = rows * heads * size_ceil_div(y->dims[1] / heads, tile) * tile;
    return (size_t)(dq + operand_elements(lse)) * sizeof(float);
}

const struct op_declaration op_attention_backward = {
    OP_NAMED(attention_backward, ATTENTION_BACKWARD),
    .operand = {[ATTENTION_BACKWARD_DY] = {OPERAND_IN, "??"},
                [ATTENTION_BACKWARD_QKV] = {OPERAND_IN, "NW"},
                [ATTENTION_BACKWARD_Y] = {OPERAND_IN, "??"},
                [ATTENTION_BACKWARD_LSE] = {OPERAND_IN, "???", DTYPES_F32},
                [ATTENTION_BACKWARD_SCALARS] = SCALARS(OPERAND_IN),
                [ATTENTION_BACKWARD_DQKV] = {OPERAND_OUT, "NW", .like = ATTENTION_BACKWARD_QKV},
                [ATTENTION_BACKWARD_FIRST] = {OPERAND_IN | OPERAND_OPTIONAL, "N", DTYPES_I32}},
    .multiplies = true,
    .check = attention_backward_check,
    .flops = attention_backward_flops,
    .workspace_cap = attention_backward_workspace_cap,
};

static bool attention_cached_check(const struct op_call *call, struct infer_sizes *sizes)
{
    const struct operand *cache = &call->operand[ATTENTION_CACHED_CACHE];
    if (!attention_heads_check(call, ATTENTION_CACHED_QKV, sizes))
        return false;
    const int64_t width = sizes->letter['Y' - 'A'] / call->attrs.heads * call->attrs.kv_heads;
    return infer_check(call, ATTENTION_CACHED_CACHE, DTYPES_FLOAT,
                       SHAPE4(2, sizes->letter['B' - 'A'], ANY, width)) &&
           infer_expect(cache->dims[2] >= call->attrs.time, call,
                        "operand cache has a capacity of %" PRId64
                        ", expected at least time = %" PRId32,
                        cache->dims[2], call->attrs.time);
}

/* Assumes a full cache, because the position is a device scalar and unknown here. */
static double attention_cached_flops(const struct op_call *call)
{
    return 4.0 * cost_elements(call, ATTENTION_CACHED_Y) * (double)op_cache_keys(call);
}

/* With few new rows, kernels split the keys into parts.  Each part needs its sums, its largest
 * score and its scale. */
static size_t attention_cached_workspace_cap(const struct op_call *call)
{
    const struct operand *y = &call->operand[ATTENTION_CACHED_Y];
    const int64_t parts = op_cache_parts(call, OP_CACHE_KEYS),
                  most = OP_CACHE_RANGES + (call->attrs.window > 0);
    if (call->attrs.time >= OP_CACHE_ROWS || parts <= 1 || call->attrs.heads <= 0)
        return 0;
    const int64_t rows = y->dims[0], sums = operand_elements(y) + 2 * rows * call->attrs.heads;
    return (size_t)(sums * min_i64(parts, most)) * sizeof(float);
}

const struct op_declaration op_attention_cached = {
    OP_NAMED(attention_cached, ATTENTION_CACHED),
    .operand = {[ATTENTION_CACHED_QKV] = {OPERAND_IN, "NW"},
                [ATTENTION_CACHED_SCALARS] = SCALARS(OPERAND_IN),
                [ATTENTION_CACHED_CACHE] = {OPERAND_INOUT, "2???"},
                [ATTENTION_CACHED_Y] = {OPERAND_OUT, "NY"}},
    .multiplies = true,
    .check = attention_cached_check,
    .flops = attention_cached_flops,
    .workspace_cap = attention_cached_workspace_cap,
};
