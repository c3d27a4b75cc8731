/* Attention.  The oracle computes all scores of one query row, without blocks or rescaling; the naive reference does so
 * in fp32.
 *
 * The oracle's backward takes lse and y as given (rounded), as a backend does.  With 16-bit operands a backend may
 * round p and ds, the factors of a product with them, to the same 16 bits, and nothing else; the oracle computes the
 * error that this can add to each output.  Terms: tests/opcheck/bounds.md.
 */
#include <assert.h>
#include <math.h>
#include <stdlib.h>

#include "tests/ops/op_test.h"

struct geometry {
    int64_t samples, time, heads, kv_heads, size, width; /* width of a qkv row */
    double scale;
    int64_t time8;
    double half_u, half_floor; /* for a factor rounded to the dtype of keys and values; 0 for fp32 */
};

/* One row: the scores s, the softmax p, the mask factors, and the relative condition of p without its normalisation. */
struct row {
    int64_t keys;
    double *score, *p, *factor, *relative;
    double peak, lse, lse_term, sum_term;
};

static struct geometry geometry_make(const struct op_call *call, int32_t qkv)
{
    struct geometry g = {.time = call->attrs.time, .heads = call->attrs.heads, .kv_heads = call->attrs.kv_heads};
    g.samples = call->operand[qkv].dims[0] / g.time;
    g.width = call->operand[qkv].dims[1];
    g.size = g.width / (g.heads + 2 * g.kv_heads);
    g.scale = (double)call->attrs.softmax_scale;
    g.time8 = (g.time + 7) / 8 * 8;
    enum dtype dtype = call->operand[call->kind == OP_ATTENTION_CACHED ? ATTENTION_CACHED_CACHE : qkv].dtype;
    g.half_u = dtype == DTYPE_F32 ? 0.0 : dtype_unit_roundoff(dtype);
    g.half_floor = ref_half_floor(dtype);
    return g;
}

/* Adds the share of one rounded factor: `largest` is its largest error, evenly distributed. */
static void half_add(const struct ref_tensors *t, int32_t slot, int64_t i, double largest)
{
    if (t->half_bound[slot] == NULL)
        return;
    t->half_bound[slot][i] += largest;
    t->half_square[slot][i] += largest * largest / 3.0;
}

/* Sets the bound to the smaller of the sum of all roundings in one direction and 8 standard deviations of their sum. */
static void half_close(const struct ref_tensors *t, int32_t slot, int64_t count)
{
    for (int64_t i = 0; i < count && t->half_bound[slot] != NULL; i++)
        t->half_bound[slot][i] = fmin(t->half_bound[slot][i], 8.0 * sqrt(t->half_square[slot][i]));
}

static struct row row_make(int64_t keys)
{
    double *space = calloc((size_t)(4 * keys), sizeof *space);
    if (space == NULL)
        abort();
    return (struct row){
        .keys = keys, .score = space, .p = space + keys, .factor = space + 2 * keys, .relative = space + 3 * keys};
}

/* Computes the scores of query q against `row->keys` keys, `stride` doubles apart: a sum of D products, times the
 * scale. */
static void row_scores(const struct geometry *g, struct row *row, const double *q, const double *k, int64_t stride)
{
    row->peak = -INFINITY;
    for (int64_t j = 0; j < row->keys; j++) {
        double sum = 0.0, size = 0.0;
        for (int64_t d = 0; d < g->size; d++) {
            sum += q[d] * k[j * stride + d];
            size += fabs(q[d] * k[j * stride + d]);
        }
        row->score[j] = sum * g->scale;
        row->relative[j] = (sqrt((double)g->size) + 1.0) * size * fabs(g->scale);
        row->peak = row->score[j] > row->peak ? row->score[j] : row->peak;
    }
}

/* p = exp(s - lse); the exponent's rounding adds |s - peak|. */
static void row_softmax(struct row *row)
{
    double sum = 0.0, size = 0.0;
    for (int64_t j = 0; j < row->keys; j++) {
        row->p[j] = exp(row->score[j] - row->peak);
        row->relative[j] += fabs(row->score[j] - row->peak) + 1.0;
        sum += row->p[j];
        size += row->p[j] * row->relative[j];
    }
    for (int64_t j = 0; j < row->keys; j++)
        row->p[j] /= sum;
    row->lse = row->peak + log(sum);
    row->sum_term = sqrt((double)row->keys) + size / sum;
    row->lse_term = row->sum_term + fabs(row->peak) + log(sum);
}

/* y_d = sum p factor v.  The term covers perturbed scores, the sum itself, and the division by a perturbed sum. */
static void row_output(const struct geometry *g, const struct row *row, const double *v, int64_t stride,
                       const struct ref_tensors *t, int32_t slot, int64_t line)
{
    double *y = t->value[slot] + line, *term = t->term[slot] + line;
    for (int64_t d = 0; d < g->size; d++) {
        double sum = 0.0, size = 0.0, shaken = 0.0;
        for (int64_t j = 0; j < row->keys; j++) {
            double part = row->p[j] * row->factor[j] * v[j * stride + d];
            sum += part;
            size += fabs(part);
            shaken += fabs(part) * row->relative[j];
            half_add(t, slot, line + d,
                     (g->half_u * row->p[j] + g->half_floor) * row->factor[j] * fabs(v[j * stride + d]));
        }
        y[d] = sum;
        term[d] = sqrt((double)row->keys) * size + shaken + fabs(sum) * row->sum_term;
    }
}

static void row_factors(const struct op_call *call, const struct geometry *g, struct row *row, const double *scalars,
                        int64_t sample, int64_t head, int64_t query)
{
    for (int64_t j = 0; j < row->keys; j++)
        row->factor[j] = ref_dropout_factor(scalars, call->attrs.dropout, call->attrs.site + (int32_t)(head << 16),
                                            sample, query * g->time8 + j);
}

static void ref_attention_forward(const struct op_call *call, const struct ref_tensors *t)
{
    struct geometry g = geometry_make(call, ATTENTION_FORWARD_QKV);
    struct row row = row_make(g.time);
    for (int64_t index = 0; index < g.samples * g.heads * g.time; index++) {
        int64_t b = index / (g.heads * g.time), h = index / g.time % g.heads, i = index % g.time;
        int64_t kv = h / (g.heads / g.kv_heads), y = (b * g.time + i) * g.heads * g.size + h * g.size;
        const double *sample = t->value[ATTENTION_FORWARD_QKV] + b * g.time * g.width;
        row.keys = i + 1;
        row_scores(&g, &row, sample + i * g.width + h * g.size, sample + (g.heads + kv) * g.size, g.width);
        row_softmax(&row);
        row_factors(call, &g, &row, t->value[ATTENTION_FORWARD_SCALARS], b, h, i);
        row_output(&g, &row, sample + (g.heads + g.kv_heads + kv) * g.size, g.width, t, ATTENTION_FORWARD_Y, y);
        t->value[ATTENTION_FORWARD_LSE][index] = row.lse;
        t->term[ATTENTION_FORWARD_LSE][index] = row.lse_term;
    }
    half_close(t, ATTENTION_FORWARD_Y, operand_elements(&call->operand[ATTENTION_FORWARD_Y]));
    free(row.score);
}

/* Adds to the gradients of one query row i of head h in sample b. */
static void backward_row(const struct geometry *g, const struct ref_tensors *t, struct row *row, int64_t b, int64_t h,
                         int64_t i)
{
    int64_t group = g->heads / g->kv_heads, kv = h / group, line = (b * g->time + i) * g->heads * g->size + h * g->size;
    int64_t base = b * g->time * g->width, q = base + i * g->width + h * g->size;
    const double *qkv = t->value[ATTENTION_BACKWARD_QKV], *dy = t->value[ATTENTION_BACKWARD_DY] + line;
    const double *y = t->value[ATTENTION_BACKWARD_Y] + line;
    double *out = t->value[ATTENTION_BACKWARD_DQKV], *term = t->term[ATTENTION_BACKWARD_DQKV];
    double lse = t->value[ATTENTION_BACKWARD_LSE][(b * g->heads + h) * g->time + i];
    double delta = 0.0, delta_size = 0.0, root = sqrt((double)g->size), keys_root = sqrt((double)row->keys);
    for (int64_t d = 0; d < g->size; d++) {
        delta += dy[d] * y[d];
        delta_size += fabs(dy[d] * y[d]);
    }
    for (int64_t j = 0; j < row->keys; j++) {
        int64_t k = base + j * g->width + (g->heads + kv) * g->size, v = k + g->kv_heads * g->size;
        double p = exp(row->score[j] - lse), shaken = row->relative[j] + fabs(row->score[j] - lse) + 1.0;
        double dp = 0.0, dp_size = 0.0, queries_root = sqrt((double)((g->time - j) * group));
        for (int64_t d = 0; d < g->size; d++) {
            dp += dy[d] * qkv[v + d] * row->factor[j];
            dp_size += fabs(dy[d] * qkv[v + d] * row->factor[j]);
        }
        double ds = p * (dp - delta) * g->scale;
        double ds_term = p * fabs(g->scale) * (root * (dp_size + delta_size) + fabs(dp - delta) * (shaken + 2.0));
        double ds_half = g->half_u * fabs(ds) + g->half_floor * fmax(1.0, fabs(g->scale));
        double p_half = (g->half_u * p + g->half_floor) * row->factor[j];
        for (int64_t d = 0; d < g->size; d++) {
            double weight = p * row->factor[j] * dy[d];
            out[q + d] += ds * qkv[k + d];
            term[q + d] += keys_root * fabs(ds * qkv[k + d]) + ds_term * fabs(qkv[k + d]);
            out[k + d] += ds * qkv[q + d];
            term[k + d] += queries_root * fabs(ds * qkv[q + d]) + ds_term * fabs(qkv[q + d]);
            out[v + d] += weight;
            term[v + d] += fabs(weight) * (queries_root + shaken);
            half_add(t, ATTENTION_BACKWARD_DQKV, q + d, ds_half * fabs(qkv[k + d]));
            half_add(t, ATTENTION_BACKWARD_DQKV, k + d, ds_half * fabs(qkv[q + d]));
            half_add(t, ATTENTION_BACKWARD_DQKV, v + d, p_half * fabs(dy[d]));
        }
    }
}

static void ref_attention_backward(const struct op_call *call, const struct ref_tensors *t)
{
    struct geometry g = geometry_make(call, ATTENTION_BACKWARD_QKV);
    struct row row = row_make(g.time);
    for (int64_t i = 0; i < g.samples * g.time * g.width; i++)
        t->value[ATTENTION_BACKWARD_DQKV][i] = t->term[ATTENTION_BACKWARD_DQKV][i] = 0.0;
    for (int64_t index = 0; index < g.samples * g.heads * g.time; index++) {
        int64_t b = index / (g.heads * g.time), h = index / g.time % g.heads, i = index % g.time;
        int64_t kv = h / (g.heads / g.kv_heads);
        const double *sample = t->value[ATTENTION_BACKWARD_QKV] + b * g.time * g.width;
        row.keys = i + 1;
        row_scores(&g, &row, sample + i * g.width + h * g.size, sample + (g.heads + kv) * g.size, g.width);
        row_factors(call, &g, &row, t->value[ATTENTION_BACKWARD_SCALARS], b, h, i);
        backward_row(&g, t, &row, b, h, i);
    }
    half_close(t, ATTENTION_BACKWARD_DQKV, operand_elements(&call->operand[ATTENTION_BACKWARD_DQKV]));
    free(row.score);
}

/* cache[2, B, capacity, KV D]: appends k and v of the new rows, as a 16-bit dtype stores them; the rest keeps its
 * bits. */
static void cache_append(const struct op_call *call, const struct geometry *g, const struct ref_tensors *t)
{
    int64_t capacity = call->operand[ATTENTION_CACHED_CACHE].dims[2], line = g->kv_heads * g->size;
    int64_t position = (int64_t)t->value[ATTENTION_CACHED_SCALARS][SCALAR_POSITION];
    enum dtype dtype = call->operand[ATTENTION_CACHED_CACHE].dtype;
    for (int64_t i = 0; i < 2 * g->samples * capacity * line; i++)
        t->term[ATTENTION_CACHED_CACHE][i] = REF_EXACT;
    for (int64_t n = 0; n < g->samples * g->time; n++) {
        for (int64_t c = 0; c < 2 * line; c++) {
            int64_t half = c / line, slot = (half * g->samples + n / g->time) * capacity + position + n % g->time;
            double x = t->value[ATTENTION_CACHED_QKV][n * g->width + g->heads * g->size + c];
            t->value[ATTENTION_CACHED_CACHE][slot * line + c % line] = dtype == DTYPE_F32 ? x : ref_rounded(dtype, x);
        }
    }
}

static void ref_attention_cached(const struct op_call *call, const struct ref_tensors *t)
{
    struct geometry g = geometry_make(call, ATTENTION_CACHED_QKV);
    int64_t capacity = call->operand[ATTENTION_CACHED_CACHE].dims[2], line = g.kv_heads * g.size;
    int64_t position = (int64_t)t->value[ATTENTION_CACHED_SCALARS][SCALAR_POSITION];
    struct row row = row_make(capacity);
    cache_append(call, &g, t);
    for (int64_t index = 0; index < g.samples * g.heads * g.time; index++) {
        int64_t b = index / (g.heads * g.time), h = index / g.time % g.heads, i = index % g.time;
        int64_t kv = h / (g.heads / g.kv_heads), n = b * g.time + i;
        const double *k = t->value[ATTENTION_CACHED_CACHE] + b * capacity * line + kv * g.size;
        row.keys = position + i + 1;
        assert(row.keys <= capacity);
        row_scores(&g, &row, t->value[ATTENTION_CACHED_QKV] + n * g.width + h * g.size, k, line);
        row_softmax(&row);
        for (int64_t j = 0; j < row.keys; j++)
            row.factor[j] = 1.0;
        row_output(&g, &row, k + g.samples * capacity * line, line, t, ATTENTION_CACHED_Y, (n * g.heads + h) * g.size);
    }
    half_close(t, ATTENTION_CACHED_Y, operand_elements(&call->operand[ATTENTION_CACHED_Y]));
    free(row.score);
}

struct naive_geometry {
    int64_t samples, time, heads, kv_heads, size, width, time8;
    float scale;
    enum dtype dtype; /* that of keys and values */
};

static struct naive_geometry naive_geometry_make(const struct op_call *call, int32_t qkv)
{
    struct naive_geometry g = {.time = call->attrs.time, .heads = call->attrs.heads, .kv_heads = call->attrs.kv_heads};
    g.samples = call->operand[qkv].dims[0] / g.time;
    g.width = call->operand[qkv].dims[1];
    g.size = g.width / (g.heads + 2 * g.kv_heads);
    g.scale = call->attrs.softmax_scale;
    g.time8 = (g.time + 7) / 8 * 8;
    g.dtype = call->operand[call->kind == OP_ATTENTION_CACHED ? ATTENTION_CACHED_CACHE : qkv].dtype;
    return g;
}

/* Returns a factor as it enters a product with 16-bit operands. */
static float product_factor(const struct naive_geometry *g, float factor, enum naive_defect defect)
{
    return defect == PERMITTED_HALF_FACTORS ? naive_rounded(g->dtype, factor) : factor;
}

static int64_t kv_head(const struct naive_geometry *g, int64_t h, enum naive_defect defect)
{
    return defect == DEFECT_WRONG_HEAD ? h % g->kv_heads : h / (g->heads / g->kv_heads);
}

/* Returns the number of keys that query i of `limit` rows sees. */
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

static void scores(const struct naive_geometry *g, float *s, int64_t keys, const double *q, const double *k,
                   int64_t stride, enum naive_defect defect)
{
    for (int64_t j = 0; j < keys; j++) {
        s[j] = dot(q, k + j * stride, g->size, defect) * (defect == DEFECT_FORGET_SCALE ? 1.0f : g->scale);
        if (defect == DEFECT_HALF_SCORES)
            s[j] = naive_rounded(g->dtype, s[j]);
    }
}

/* s := exp(s - max) / sum, in place; returns log-sum-exp.  `factor` is the dropout mask, or NULL. */
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

static void weighted(const struct naive_geometry *g, const float *p, int64_t keys, const double *v, int64_t stride,
                     double *y, enum naive_defect defect)
{
    for (int64_t d = 0; d < g->size; d++) {
        float sum = 0.0f;
        for (int64_t j = 0; j < keys; j++)
            sum = naive_add(sum, product_factor(g, p[j], defect) * naive_at(v, j * stride + d), defect);
        y[d] = (double)sum;
    }
}

static float *naive_row_make(int64_t count)
{
    float *row = calloc((size_t)count, sizeof *row);
    if (row == NULL)
        abort();
    return row;
}

static void factors(const struct op_call *call, const struct naive_geometry *g, float *factor, int64_t keys,
                    const double *scalars, int64_t b, int64_t h, int64_t i, enum naive_defect defect)
{
    int32_t site = call->attrs.site + (int32_t)(h << 16);
    for (int64_t j = 0; j < keys; j++)
        factor[j] = naive_dropout_factor(scalars, call->attrs.dropout, site, b, i * g->time8 + j, defect);
}

static void naive_attention_forward(const struct op_call *call, double *const value[OP_OPERANDS_MAX],
                                    enum naive_defect defect)
{
    struct naive_geometry g = naive_geometry_make(call, ATTENTION_FORWARD_QKV);
    float *s = naive_row_make(2 * g.time), *factor = s + g.time;
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

static void backward_key(const struct naive_geometry *g, double *const *value, int64_t q, int64_t k, int64_t line,
                         float p, float factor, float delta, enum naive_defect defect)
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

static void naive_attention_backward(const struct op_call *call, double *const value[OP_OPERANDS_MAX],
                                     enum naive_defect defect)
{
    struct naive_geometry g = naive_geometry_make(call, ATTENTION_BACKWARD_QKV);
    float *s = naive_row_make(2 * g.time), *factor = s + g.time;
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

static void naive_cache_append(const struct op_call *call, const struct naive_geometry *g, double *const *value,
                               int64_t position, enum naive_defect defect)
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

static void naive_attention_cached(const struct op_call *call, double *const value[OP_OPERANDS_MAX],
                                   enum naive_defect defect)
{
    struct naive_geometry g = naive_geometry_make(call, ATTENTION_CACHED_QKV);
    int64_t capacity = call->operand[ATTENTION_CACHED_CACHE].dims[2], line = g.kv_heads * g.size;
    int64_t position = (int64_t)value[ATTENTION_CACHED_SCALARS][SCALAR_POSITION];
    if (defect == DEFECT_FORGET_POSITION)
        position = 0;
    float *s = naive_row_make(capacity);
    naive_cache_append(call, &g, value, position, defect);
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

static const int64_t head_sizes[] = {16, 32, 48, 64, 128, 1, 5, 24, 42, 56, 80, 96};

/* Draws heads, key-value heads, head size and dropout; returns the number of rows. */
static int64_t attention_shape(struct maker *maker, int64_t time, int64_t *out_width, int64_t *out_size)
{
    static const int32_t heads[][2] = {{1, 1}, {2, 2}, {3, 3}, {4, 2}, {4, 1}, {6, 3}};
    static const float rates[] = {0.0f, 0.1f, 0.5f, 0.0f};
    struct op_attrs *a = case_attrs(maker);
    int64_t pair = maker->index % COUNT(heads), samples = time > 65 ? 1 : 1 + random_below(&maker->random, 2);
    *out_size = head_sizes[maker->index / 2 % COUNT(head_sizes)];
    a->time = (int32_t)time;
    a->heads = heads[pair][0];
    a->kv_heads = heads[pair][1];
    if (maker->index / 2 == 39 || maker->index / 2 == 59) { /* one layer of the 124M model, with few rows */
        a->heads = a->kv_heads = 12;
        *out_size = 64;
    }
    a->softmax_scale = (float)(1.0 / sqrt((double)*out_size));
    a->dropout = maker->check->call.kind == OP_ATTENTION_CACHED ? 0.0f : rates[maker->index / 3 % 4];
    if (time == 1)
        a->dropout = 0.0f; /* a row of one key that is dropped shows nothing */
    a->site = (int32_t)(1 + random_below(&maker->random, 40));
    *out_width = (a->heads + 2 * a->kv_heads) * *out_size;
    return samples * time;
}

static void make_attention_forward(struct maker *maker)
{
    int64_t width = 0, size = 0, rows = attention_shape(maker, case_size(maker, 129), &width, &size);
    case_tensor(maker, ATTENTION_FORWARD_QKV, maker->dtype, rows, width);
    case_scalars(maker, ATTENTION_FORWARD_SCALARS);
}

static void make_attention_backward(struct maker *maker)
{
    int64_t width = 0, size = 0, rows = attention_shape(maker, case_size(maker, 129), &width, &size);
    const struct op_attrs *a = case_attrs(maker);
    case_tensor(maker, ATTENTION_BACKWARD_DY, maker->dtype, rows, a->heads * size);
    case_tensor(maker, ATTENTION_BACKWARD_QKV, maker->dtype, rows, width);
    case_tensor(maker, ATTENTION_BACKWARD_Y, maker->dtype, rows, a->heads * size);
    case_tensor(maker, ATTENTION_BACKWARD_LSE, DTYPE_F32, rows / a->time, a->heads);
    maker->check->call.operand[ATTENTION_BACKWARD_LSE].rank = 3;
    maker->check->call.operand[ATTENTION_BACKWARD_LSE].dims[2] = a->time;
    case_scalars(maker, ATTENTION_BACKWARD_SCALARS);
}

static void make_attention_cached(struct maker *maker)
{
    int64_t time = maker->index % 2 != 0 ? 1 : maker->index == 78 ? 33 : case_size(maker, 33), width = 0, size = 0;
    int64_t rows = attention_shape(maker, time, &width, &size);
    struct operand *cache = &maker->check->call.operand[ATTENTION_CACHED_CACHE];
    case_tensor(maker, ATTENTION_CACHED_QKV, maker->dtype, rows, width);
    case_scalars(maker, ATTENTION_CACHED_SCALARS);
    case_tensor(maker, ATTENTION_CACHED_CACHE, maker->dtype, 2, rows / time);
    cache->rank = 4;
    cache->dims[2] = time + (maker->index % 4 == 0 ? 0 : random_below(&maker->random, 70)); /* 0: becomes full */
    cache->dims[3] = case_attrs(maker)->kv_heads * size;
}

#define BENCH_HEADS 12

static void bench_attrs(struct maker *maker, int32_t time)
{
    struct op_attrs *a = case_attrs(maker);
    a->heads = a->kv_heads = BENCH_HEADS;
    a->dropout = 0.0f;
    a->softmax_scale = 0.125f;
    a->time = time;
}

static void bench_attention_forward(struct maker *maker)
{
    bench_attrs(maker, BENCH_TIME);
    case_tensor(maker, ATTENTION_FORWARD_QKV, maker->dtype, BENCH_ROWS, 3 * BENCH_CHANNELS);
}

static void bench_attention_backward(struct maker *maker)
{
    struct operand *lse = &maker->check->call.operand[ATTENTION_BACKWARD_LSE];
    bench_attrs(maker, BENCH_TIME);
    case_tensor(maker, ATTENTION_BACKWARD_DY, maker->dtype, BENCH_ROWS, BENCH_CHANNELS);
    case_tensor(maker, ATTENTION_BACKWARD_QKV, maker->dtype, BENCH_ROWS, 3 * BENCH_CHANNELS);
    case_tensor(maker, ATTENTION_BACKWARD_Y, maker->dtype, BENCH_ROWS, BENCH_CHANNELS);
    lse->dims[0] = BENCH_SAMPLES;
    lse->dims[1] = BENCH_HEADS;
    lse->dims[2] = BENCH_TIME;
}

static void bench_attention_cached(struct maker *maker)
{
    struct operand *cache = &maker->check->call.operand[ATTENTION_CACHED_CACHE];
    bench_attrs(maker, 1);
    case_tensor(maker, ATTENTION_CACHED_QKV, maker->dtype, BENCH_SAMPLES, 3 * BENCH_CHANNELS);
    cache->dims[1] = BENCH_SAMPLES;
    cache->dims[2] = BENCH_TIME;
    cache->dims[3] = BENCH_CHANNELS;
}

/* Multiplies v, the last part of every row of qkv, by `factor`. */
static void scale_values(const struct check_case *check, int32_t slot, double *qkv, double factor)
{
    const struct op_attrs *attrs = &check->call.attrs;
    int64_t width = case_operand(check, slot)->dims[1], size = width / (attrs->heads + 2 * attrs->kv_heads);
    for (int64_t i = 0, count = operand_elements(case_operand(check, slot)); i < count; i++)
        qkv[i] *= i % width >= (attrs->heads + attrs->kv_heads) * size ? factor : 1.0;
}

static void inputs_attention_forward(const struct check_case *check, double *const *value, struct random *random)
{
    (void)random;
    double factor = check->inputs == INPUTS_LARGE ? 4.0 : check->inputs == INPUTS_SMALL ? 0.1 : 1.0;
    inputs_scale(check, ATTENTION_FORWARD_QKV, value[ATTENTION_FORWARD_QKV], factor, 0.0);
    if (check->inputs == INPUTS_HUGE)
        scale_values(check, ATTENTION_FORWARD_QKV, value[ATTENTION_FORWARD_QKV], HUGE_SCALE);
}

/* lse and y come from the oracle's forward, rounded as they would be stored.  In "huge" cases dv sums large dy of one
 * sign, and small values keep ds, which a backend may round to 16 bits, far from overflow. */
static void inputs_attention_backward(const struct check_case *check, double *const *value, struct random *random)
{
    struct check_case forward = {.call = {.kind = OP_ATTENTION_FORWARD, .attrs = check->call.attrs}};
    struct ref_tensors tensors = {.value = {NULL}};
    (void)random;
    double factor = check->inputs == INPUTS_LARGE ? 3.0 : check->inputs == INPUTS_SMALL ? 0.1 : 1.0;
    inputs_scale(check, ATTENTION_BACKWARD_QKV, value[ATTENTION_BACKWARD_QKV], factor, 0.0);
    if (check->inputs == INPUTS_HUGE) {
        scale_values(check, ATTENTION_BACKWARD_QKV, value[ATTENTION_BACKWARD_QKV], 1e-3);
        inputs_scale(check, ATTENTION_BACKWARD_DY, value[ATTENTION_BACKWARD_DY], HUGE_SCALE / 4.0, HUGE_SCALE);
    }
    inputs_rounded(check, ATTENTION_BACKWARD_QKV, value[ATTENTION_BACKWARD_QKV]);
    forward.call.operand[ATTENTION_FORWARD_QKV] = *case_operand(check, ATTENTION_BACKWARD_QKV);
    tensors.value[ATTENTION_FORWARD_QKV] = value[ATTENTION_BACKWARD_QKV];
    tensors.value[ATTENTION_FORWARD_SCALARS] = value[ATTENTION_BACKWARD_SCALARS];
    tensors.value[ATTENTION_FORWARD_Y] = value[ATTENTION_BACKWARD_Y];
    tensors.value[ATTENTION_FORWARD_LSE] = value[ATTENTION_BACKWARD_LSE];
    size_t count = (size_t)operand_elements(case_operand(check, ATTENTION_BACKWARD_Y));
    double *terms = calloc(2 * count, sizeof *terms); /* lse has at most as many elements as y */
    if (terms == NULL)
        abort();
    tensors.term[ATTENTION_FORWARD_Y] = terms;
    tensors.term[ATTENTION_FORWARD_LSE] = terms + count;
    ref_run(&forward.call, &tensors);
    free(terms);
}

static void inputs_attention_cached(const struct check_case *check, double *const *value, struct random *random)
{
    int64_t capacity = case_operand(check, ATTENTION_CACHED_CACHE)->dims[2];
    if (check->inputs == INPUTS_HUGE)
        scale_values(check, ATTENTION_CACHED_QKV, value[ATTENTION_CACHED_QKV], HUGE_SCALE);
    value[ATTENTION_CACHED_SCALARS][SCALAR_POSITION] =
        (double)random_below(random, capacity - check->call.attrs.time + 1);
}

/* The elements of a head's row share the rounded probabilities, in any dtype. */
static double forward_shared_by(const struct op_call *call, int32_t slot)
{
    const struct operand *operand = &call->operand[slot];
    return operand->rank == 2 ? (double)operand->dims[1] / (double)call->attrs.heads : 1.0;
}

static double backward_shared_by(const struct op_call *call, int32_t slot)
{
    return (double)op_columns(call, slot) / (double)(call->attrs.heads + 2 * call->attrs.kv_heads);
}

const struct op_test test_attention_forward = {
    .shape = make_attention_forward,
    .bench = bench_attention_forward,
    .inputs = inputs_attention_forward,
    .ref = ref_attention_forward,
    .naive = naive_attention_forward,
    .has_many_variants = true,
    .shared_by = forward_shared_by,
    .permits = PERMITTED_HALF_FACTORS,
    .defects = {DEFECT_MASK_NARROW, DEFECT_MASK_WIDE, DEFECT_FORGET_SCALE, DEFECT_WRONG_HEAD, DEFECT_WRONG_SITE,
                DEFECT_WRONG_SAMPLE, DEFECT_MASK_BEFORE, DEFECT_LAST_TERM, DEFECT_BF16_SUM, DEFECT_MASK_INVERTED,
                DEFECT_HALF_SCORES},
};

const struct op_test test_attention_backward = {
    .shape = make_attention_backward,
    .bench = bench_attention_backward,
    .inputs = inputs_attention_backward,
    .ref = ref_attention_backward,
    .naive = naive_attention_backward,
    .has_many_variants = true,
    .shared_by = backward_shared_by,
    .permits = PERMITTED_HALF_FACTORS,
    .defects = {DEFECT_MASK_NARROW, DEFECT_MASK_WIDE, DEFECT_FORGET_SCALE, DEFECT_WRONG_HEAD, DEFECT_WRONG_SITE,
                DEFECT_WRONG_SAMPLE, DEFECT_FORGET_FIRST, DEFECT_FORGET_SECOND, DEFECT_SWAPPED, DEFECT_BF16_SUM,
                DEFECT_HALF_SCORES},
};

const struct op_test test_attention_cached = {
    .shape = make_attention_cached,
    .bench = bench_attention_cached,
    .inputs = inputs_attention_cached,
    .ref = ref_attention_cached,
    .naive = naive_attention_cached,
    .shared_by = forward_shared_by,
    .permits = PERMITTED_HALF_FACTORS,
    .never_overflows = true,
    .unrounded = 1u << ATTENTION_CACHED_CACHE,
    .defects = {DEFECT_MASK_NARROW, DEFECT_MASK_WIDE, DEFECT_FORGET_SCALE, DEFECT_WRONG_HEAD, DEFECT_FORGET_POSITION,
                DEFECT_WRONG_ROW, DEFECT_LAST_TERM, DEFECT_BF16_SUM, DEFECT_HALF_SCORES},
};
