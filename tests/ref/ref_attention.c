/* The oracle of attention: one query row at a time, all its scores held, nothing blocked or rescaled.
 *
 * The backward takes lse and y as they are given (rounded), as a backend does.  With 16-bit operands a backend may round
 * the factors of a product with them, p and ds, to the same 16 bits, and nothing else; what that can add to an output is
 * computed beside it.  Terms: tests/opcheck/bounds.md.
 */
#include <assert.h>
#include <math.h>
#include <stdlib.h>

#include "tests/ref/ref.h"

struct geometry {
    int64_t samples, time, heads, kv_heads, size, width; /* width of a qkv row */
    double scale;
    int64_t time8;
    double half_u, half_floor; /* of a factor that is rounded to the dtype of the keys and values; 0 for fp32 */
};

/* One row's scores: s, the softmax p, the mask factors, and the relative condition of p without its normalisation. */
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

/* Adds one rounded factor's share: `largest` is what it can add, evenly spread. */
static void half_add(const struct ref_tensors *t, int32_t slot, int64_t i, double largest)
{
    if (t->half_bound[slot] == NULL)
        return;
    t->half_bound[slot][i] += largest;
    t->half_square[slot][i] += largest * largest / 3.0;
}

/* All roundings at their worst and in one direction, or 8 standard deviations of their sum, whichever is less. */
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

/* Scores of query q against `row->keys` keys, `stride` doubles apart: a sum of D products, times the scale. */
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

/* y_d = sum p factor v: perturbed scores, the sum itself, and the division by a perturbed sum. */
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

void ref_attention_forward(const struct op_call *call, const struct ref_tensors *t)
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

void ref_attention_backward(const struct op_call *call, const struct ref_tensors *t)
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

/* cache[2, B, capacity, KV D]: appends k and v of the new rows, as a 16-bit dtype stores them; the rest keeps its bits. */
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

void ref_attention_cached(const struct op_call *call, const struct ref_tensors *t)
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
