/* The naive reference of attention in fp32: whole rows of scores, softmax with the maximum taken off, in order.
 *
 * Defects sit where masks, heads, scales and dropout are applied; so does what is permitted with 16-bit operands, the
 * rounding of p and ds before a product.
 */
#include <assert.h>
#include <math.h>
#include <stdlib.h>

#include "tests/ref/naive.h"

struct geometry {
    int64_t samples, time, heads, kv_heads, size, width, time8;
    float scale;
    enum dtype dtype; /* of keys and values */
};

static struct geometry geometry_make(const struct op_call *call, int32_t qkv)
{
    struct geometry g = {.time = call->attrs.time, .heads = call->attrs.heads, .kv_heads = call->attrs.kv_heads};
    g.samples = call->operand[qkv].dims[0] / g.time;
    g.width = call->operand[qkv].dims[1];
    g.size = g.width / (g.heads + 2 * g.kv_heads);
    g.scale = call->attrs.softmax_scale;
    g.time8 = (g.time + 7) / 8 * 8;
    g.dtype = call->operand[call->kind == OP_ATTENTION_CACHED ? ATTENTION_CACHED_CACHE : qkv].dtype;
    return g;
}

/* A factor as it goes into a product with 16-bit operands. */
static float product_factor(const struct geometry *g, float factor, enum naive_defect defect)
{
    return defect == PERMITTED_HALF_FACTORS ? naive_rounded(g->dtype, factor) : factor;
}

static int64_t kv_head(const struct geometry *g, int64_t h, enum naive_defect defect)
{
    return defect == DEFECT_WRONG_HEAD ? h % g->kv_heads : h / (g->heads / g->kv_heads);
}

/* Keys that query i of `limit` rows sees. */
static int64_t keys_seen(int64_t i, int64_t limit, enum naive_defect defect)
{
    int64_t keys = i + 1;
    if (defect == DEFECT_MASK_NARROW && keys > 1)
        keys--;
    if (defect == DEFECT_MASK_WIDE && keys < limit)
        keys++;
    return keys;
}

static float dot(const double *a, const double *b, int64_t count, enum naive_defect defect)
{
    float sum = 0.0f;
    for (int64_t d = 0; d < (defect == DEFECT_LAST_TERM ? count - 1 : count); d++)
        sum = naive_add(sum, naive_at(a, d) * naive_at(b, d), defect);
    return sum;
}

static void scores(const struct geometry *g, float *s, int64_t keys, const double *q, const double *k, int64_t stride,
                   enum naive_defect defect)
{
    for (int64_t j = 0; j < keys; j++) {
        s[j] = dot(q, k + j * stride, g->size, defect) * (defect == DEFECT_FORGET_SCALE ? 1.0f : g->scale);
        if (defect == DEFECT_HALF_SCORES)
            s[j] = naive_rounded(g->dtype, s[j]);
    }
}

/* s := exp(s - max) / sum, in place; returns log-sum-exp.  `factor` (or NULL) is the dropout mask. */
static float softmax(float *s, int64_t keys, const float *factor, enum naive_defect defect)
{
    float peak = s[0], sum = 0.0f;
    for (int64_t j = 1; j < keys; j++)
        peak = s[j] > peak ? s[j] : peak;
    for (int64_t j = 0; j < keys; j++) {
        s[j] = expf(s[j] - peak);
        sum = naive_add(sum, s[j] * (defect == DEFECT_MASK_BEFORE && factor != NULL ? factor[j] : 1.0f), defect);
    }
    for (int64_t j = 0; j < keys; j++)
        s[j] = s[j] / sum * (factor != NULL ? factor[j] : 1.0f);
    return peak + logf(sum);
}

static void weighted(const struct geometry *g, const float *p, int64_t keys, const double *v, int64_t stride, double *y,
                     enum naive_defect defect)
{
    for (int64_t d = 0; d < g->size; d++) {
        float sum = 0.0f;
        for (int64_t j = 0; j < keys; j++)
            sum = naive_add(sum, product_factor(g, p[j], defect) * naive_at(v, j * stride + d), defect);
        y[d] = (double)sum;
    }
}

static float *row_make(int64_t count)
{
    float *row = calloc((size_t)count, sizeof *row);
    if (row == NULL)
        abort();
    return row;
}

static void factors(const struct op_call *call, const struct geometry *g, float *factor, int64_t keys,
                    const double *scalars, int64_t b, int64_t h, int64_t i, enum naive_defect defect)
{
    int32_t site = call->attrs.site + (int32_t)(h << 16);
    for (int64_t j = 0; j < keys; j++)
        factor[j] = naive_dropout_factor(scalars, call->attrs.dropout, site, b, i * g->time8 + j, defect);
}

void naive_attention_forward(const struct op_call *call, double *const value[OP_OPERANDS_MAX], enum naive_defect defect)
{
    struct geometry g = geometry_make(call, ATTENTION_FORWARD_QKV);
    float *s = row_make(2 * g.time), *factor = s + g.time;
    for (int64_t index = 0; index < g.samples * g.heads * g.time; index++) {
        int64_t b = index / (g.heads * g.time), h = index / g.time % g.heads, i = index % g.time;
        int64_t kv = kv_head(&g, h, defect), keys = keys_seen(i, g.time, defect);
        const double *sample = value[ATTENTION_FORWARD_QKV] + b * g.time * g.width;
        scores(&g, s, keys, sample + i * g.width + h * g.size, sample + (g.heads + kv) * g.size, g.width, defect);
        factors(call, &g, factor, keys, value[ATTENTION_FORWARD_SCALARS], b, h, i, defect);
        value[ATTENTION_FORWARD_LSE][index] = (double)softmax(s, keys, factor, defect);
        weighted(&g, s, keys, sample + (g.heads + g.kv_heads + kv) * g.size, g.width,
                 value[ATTENTION_FORWARD_Y] + ((b * g.time + i) * g.heads + h) * g.size, defect);
    }
    free(s);
}

static void backward_key(const struct geometry *g, double *const *value, int64_t q, int64_t k, int64_t line, float p,
                         float factor, float delta, enum naive_defect defect)
{
    const double *qkv = value[ATTENTION_BACKWARD_QKV], *dy = value[ATTENTION_BACKWARD_DY] + line;
    double *out = value[ATTENTION_BACKWARD_DQKV];
    int64_t v = k + g->kv_heads * g->size;
    float dp = dot(dy, qkv + v, g->size, DEFECT_NONE) * (defect == DEFECT_FORGET_SECOND ? 1.0f : factor);
    float ds = p * (dp - (defect == DEFECT_FORGET_FIRST ? 0.0f : delta));
    float k_scale = defect == DEFECT_SWAPPED ? 1.0f : g->scale, weight = product_factor(g, p * factor, defect);
    ds = product_factor(g, ds, defect);
    for (int64_t d = 0; d < g->size; d++) {
        out[q + d] = (double)naive_add(naive_at(out, q + d), ds * g->scale * naive_at(qkv, k + d), defect);
        out[k + d] = (double)naive_add(naive_at(out, k + d), ds * k_scale * naive_at(qkv, q + d), defect);
        out[v + d] = (double)naive_add(naive_at(out, v + d), weight * naive_at(dy, d), defect);
    }
}

void naive_attention_backward(const struct op_call *call, double *const value[OP_OPERANDS_MAX],
                              enum naive_defect defect)
{
    struct geometry g = geometry_make(call, ATTENTION_BACKWARD_QKV);
    float *s = row_make(2 * g.time), *factor = s + g.time;
    const double *qkv = value[ATTENTION_BACKWARD_QKV];
    for (int64_t i = 0; i < g.samples * g.time * g.width; i++)
        value[ATTENTION_BACKWARD_DQKV][i] = 0.0;
    for (int64_t index = 0; index < g.samples * g.heads * g.time; index++) {
        int64_t b = index / (g.heads * g.time), h = index / g.time % g.heads, i = index % g.time;
        int64_t kv = kv_head(&g, h, defect), base = b * g.time * g.width, q = base + i * g.width + h * g.size;
        int64_t keys = keys_seen(i, g.time, defect), k = base + (g.heads + kv) * g.size;
        int64_t line = ((b * g.time + i) * g.heads + h) * g.size;
        float lse = naive_at(value[ATTENTION_BACKWARD_LSE], index);
        float delta = dot(value[ATTENTION_BACKWARD_DY] + line, value[ATTENTION_BACKWARD_Y] + line, g.size, DEFECT_NONE);
        scores(&g, s, keys, qkv + q, qkv + k, g.width, defect);
        factors(call, &g, factor, keys, value[ATTENTION_BACKWARD_SCALARS], b, h, i, defect);
        for (int64_t j = 0; j < keys; j++)
            backward_key(&g, value, q, k + j * g.width, line, expf(s[j] - lse), factor[j], delta, defect);
    }
    free(s);
}

static void cache_append(const struct op_call *call, const struct geometry *g, double *const *value, int64_t position,
                         enum naive_defect defect)
{
    int64_t capacity = call->operand[ATTENTION_CACHED_CACHE].dims[2], line = g->kv_heads * g->size;
    int64_t rows = g->samples * g->time - (defect == DEFECT_WRONG_ROW ? 1 : 0);
    for (int64_t n = 0; n < rows; n++) {
        for (int64_t c = 0; c < 2 * line; c++) {
            int64_t slot = (c / line * g->samples + n / g->time) * capacity + position + n % g->time;
            float x = naive_at(value[ATTENTION_CACHED_QKV], n * g->width + g->heads * g->size + c);
            value[ATTENTION_CACHED_CACHE][slot * line + c % line] = (double)naive_rounded(g->dtype, x);
        }
    }
}

void naive_attention_cached(const struct op_call *call, double *const value[OP_OPERANDS_MAX], enum naive_defect defect)
{
    struct geometry g = geometry_make(call, ATTENTION_CACHED_QKV);
    int64_t capacity = call->operand[ATTENTION_CACHED_CACHE].dims[2], line = g.kv_heads * g.size;
    int64_t position = (int64_t)value[ATTENTION_CACHED_SCALARS][SCALAR_POSITION];
    if (defect == DEFECT_FORGET_POSITION)
        position = 0;
    float *s = row_make(capacity);
    cache_append(call, &g, value, position, defect);
    for (int64_t index = 0; index < g.samples * g.heads * g.time; index++) {
        int64_t b = index / (g.heads * g.time), h = index / g.time % g.heads, i = index % g.time, n = b * g.time + i;
        const double *k = value[ATTENTION_CACHED_CACHE] + b * capacity * line + kv_head(&g, h, defect) * g.size;
        int64_t keys = keys_seen(position + i, capacity, defect);
        scores(&g, s, keys, value[ATTENTION_CACHED_QKV] + n * g.width + h * g.size, k, line, defect);
        softmax(s, keys, NULL, defect);
        weighted(&g, s, keys, k + g.samples * capacity * line, line,
                 value[ATTENTION_CACHED_Y] + (n * g.heads + h) * g.size, defect);
    }
    free(s);
}
