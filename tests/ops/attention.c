/* Attention.  The oracle computes all scores of one query row, without blocks or rescaling.
 *
 * The oracle's backward takes lse and y as given (rounded), as a backend does.  With 16-bit
 * operands a backend may round p and ds, the factors of a product with them, to the same 16 bits,
 * and nothing else; the oracle computes the error that this can add to each output.  Terms:
 * tests/opcheck/bounds.md.
 */
#include <assert.h>
#include <math.h>
#include <stdlib.h>

#include "tests/ops/op_test.h"

#define HALVED_SIZE_MAX 128 /* of heads with fp16 sums */
#define HALVED_GROUP 32 /* products of such a sum, which is rounded after HALVED_DEPTH at least */
#define HALVED_DEPTH 4
#define HALVED_MAX 65504.0

/* Where things are.  An address is a number of doubles from the start of an operand. */
struct geometry {
    int64_t samples, time, heads, kv_heads, size, width; /* width of a qkv row */
    const double *qkv, *keys, *scalars;                  /* keys: qkv, or the cache */
    const double *begin; /* where the document of a row begins, or NULL */
    int64_t key_row, key_sample, k_first, v_first;
    int64_t position, limit; /* of the first query; rows of keys: key j is in row j % limit */
    int64_t window;          /* keys that a query sees at most; 0: any number */
    float scale;
    int64_t time8;
    enum dtype dtype;          /* that of keys and values */
    double half_u, half_floor; /* for a factor rounded to that dtype; 0 for fp32 */
    bool halved;               /* sums of 32 products may be fp16 */
    double kept;               /* the factor of what dropout keeps */
    double *group;             /* such a sum of each gradient */
};

/* One query of one head: the first key that it sees, the addresses of q, of k and v of key 0, and
 * of the head's part of a row of y. */
struct place {
    int64_t b, h, i, begin, q, k, v, y;
};

/* What fp16 sums may do to a number: the mean square of its error, the mean error where sums are
 * cut off, and the largest.  is_over: one may be infinite. */
struct halved {
    double square, outward, most;
    bool is_over;
};

/* One row: the scores s, the softmax p, the mask factors, the relative condition of p without its
 * normalisation, and the errors of the scores. */
struct row {
    int64_t keys;
    double *score, *p, *factor, *relative;
    struct halved *halved;
    double peak, lse, lse_term, sum_term;
};

static struct geometry geometry_make(const struct op_call *call, double *const *value)
{
    bool cached = call->kind == OP_ATTENTION_CACHED, backward = call->kind == OP_ATTENTION_BACKWARD;
    int32_t qkv = backward ? (int32_t)ATTENTION_BACKWARD_QKV : 0,
            keys = cached ? (int32_t)ATTENTION_CACHED_CACHE : qkv;
    struct geometry g = {
        .time = call->attrs.time, .heads = call->attrs.heads, .kv_heads = call->attrs.kv_heads};
    g.samples = call->operand[qkv].dims[0] / g.time;
    g.width = call->operand[qkv].dims[1];
    g.size = g.width / (g.heads + 2 * g.kv_heads);
    g.qkv = value[qkv];
    g.keys = value[keys];
    g.scalars =
        value[backward ? (int32_t)ATTENTION_BACKWARD_SCALARS : (int32_t)ATTENTION_FORWARD_SCALARS];
    if (call->kind != OP_ATTENTION_CACHED)
        g.begin =
            value[backward ? (int32_t)ATTENTION_BACKWARD_FIRST : (int32_t)ATTENTION_FORWARD_FIRST];
    g.limit = cached ? call->operand[keys].dims[2] : g.time;
    g.position = cached ? (int64_t)g.scalars[SCALAR_POSITION] : 0;
    g.window = call->attrs.window;
    g.key_row = cached ? g.kv_heads * g.size : g.width;
    g.key_sample = g.limit * g.key_row;
    g.k_first = cached ? 0 : g.heads * g.size;
    g.v_first = cached ? g.samples * g.key_sample : g.k_first + g.kv_heads * g.size;
    g.scale = call->attrs.softmax_scale;
    g.time8 = (g.time + 7) / 8 * 8;
    g.dtype = call->operand[keys].dtype;
    g.half_u = g.dtype == DTYPE_F32 ? 0.0 : dtype_unit_roundoff(g.dtype);
    g.half_floor = ref_half_floor(g.dtype);
    g.kept = 1.0 / (1.0 - (double)call->attrs.dropout);
    g.halved = half_sums_allowed && g.dtype == DTYPE_F16 && !cached && g.size <= HALVED_SIZE_MAX;
    return g;
}

static struct place place_at(const struct geometry *g, int64_t index)
{
    struct place at = {
        .b = index / (g->heads * g->time), .h = index / g->time % g->heads, .i = index % g->time};
    int64_t kv = at.h / (g->heads / g->kv_heads);
    at.q = (at.b * g->time + at.i) * g->width + at.h * g->size;
    at.begin = g->begin != NULL ? (int64_t)g->begin[at.b * g->time + at.i] : 0;
    if (g->window > 0 && g->position + at.i >= at.begin + g->window)
        at.begin = g->position + at.i - g->window + 1;
    at.k = at.b * g->key_sample + g->k_first + kv * g->size;
    at.v = at.b * g->key_sample + g->v_first + kv * g->size;
    at.y = ((at.b * g->time + at.i) * g->heads + at.h) * g->size;
    return at;
}

/* Returns how far k or v of the j-th key that a query sees is from that of key 0. */
static int64_t key_at(const struct geometry *g, const struct place *at, int64_t j)
{
    return (at->begin + j) % g->limit * g->key_row;
}

/* Adds the share of one rounded factor: `largest` is its largest error, evenly distributed. */
static void half_add(const struct ref_tensors *t, int32_t slot, int64_t i, double largest)
{
    if (t->half_bound[slot] == NULL)
        return;
    t->half_bound[slot][i] += largest;
    t->half_square[slot][i] += largest * largest / 3.0;
}

/* Adds product k to the sum of its group, and returns the error of rounding that.  One of the
 * kernel's numbers is here at least `least` and at most `largest`: the distance of fp16's numbers
 * is known up to a factor of two. */
static struct halved halved_add(double *group, int64_t k, bool is_last, double product,
                                double least, double largest)
{
    const double before = k % HALVED_GROUP == 0 ? 0.0 : *group;
    const double size = fabs(before) + fabs(product);
    struct halved error = {.is_over = 2.0 * size > HALVED_MAX * least};
    *group = before + product;
    if ((k + 1) % HALVED_DEPTH != 0 && !is_last)
        return error;
    const double distance = fmax(0x1p-10 * size, 0x1p-24 * largest);
    error.square = distance * distance / 12.0;
    error.outward = copysign(0.5 * distance, *group);
    error.most = distance;
    return error;
}

static struct halved halved_sum(struct halved a, struct halved b)
{
    return (struct halved){a.square + b.square, a.outward + b.outward, a.most + b.most,
                           a.is_over || b.is_over};
}

/* Adds `weight` times an error to that of an element, whose drift keeps its sign until
 * half_close(). */
static void halved_share(const struct ref_tensors *t, int32_t slot, int64_t i, struct halved error,
                         double weight)
{
    if (t->half_bound[slot] == NULL)
        return;
    t->half_square[slot][i] += weight * weight * error.square;
    t->drift[slot][i] += weight * error.outward;
    t->half_bound[slot][i] += fabs(weight) * error.most;
    if (error.is_over)
        t->term[slot][i] = REF_UNSPECIFIED;
}

/* Sets the bound to the smaller of the sum of all roundings in one direction and 8 standard
 * deviations of their sum and twice its mean. */
static void half_close(const struct ref_tensors *t, int32_t slot, int64_t count)
{
    for (int64_t i = 0; i < count && t->half_bound[slot] != NULL; i++) {
        t->drift[slot][i] = fabs(t->drift[slot][i]);
        t->half_bound[slot][i] = fmin(t->half_bound[slot][i], 8.0 * sqrt(t->half_square[slot][i]) +
                                                                  2.0 * t->drift[slot][i]);
    }
}

static struct row row_make(int64_t keys)
{
    double *space = calloc((size_t)(4 * keys), sizeof *space);
    struct halved *halved = calloc((size_t)keys, sizeof *halved);
    if (space == NULL || halved == NULL)
        abort();
    return (struct row){.keys = keys,
                        .score = space,
                        .p = space + keys,
                        .factor = space + 2 * keys,
                        .relative = space + 3 * keys,
                        .halved = halved};
}

static void row_free(struct row *row)
{
    free(row->score);
    free(row->halved);
}

/* Computes the scores of a query against `row->keys` keys: a sum of D products, times the scale. */
static void row_scores(const struct geometry *g, struct row *row, const struct place *at)
{
    double scale = (double)g->scale, most = 0.0;
    row->peak = -INFINITY;
    for (int64_t j = 0; j < row->keys; j++) {
        double sum = 0.0, size = 0.0, group = 0.0;
        row->halved[j] = (struct halved){.square = 0.0};
        for (int64_t d = 0; d < g->size; d++) {
            double product = g->qkv[at->q + d] * g->keys[at->k + key_at(g, at, j) + d];
            sum += product;
            size += fabs(product);
            if (g->halved)
                row->halved[j] = halved_sum(
                    row->halved[j], halved_add(&group, d, d + 1 == g->size, product, 1.0, 1.0));
        }
        row->score[j] = sum * scale;
        row->relative[j] = (sqrt((double)g->size) + 1.0) * size * fabs(scale);
        row->peak = row->score[j] > row->peak ? row->score[j] : row->peak;
        most = fmax(most, row->halved[j].most);
    }
    for (int64_t j = 0; j < row->keys;
         j++) /* what p and its sum may be off by, beyond first order */
        row->halved[j].most *= exp(2.0 * fabs(scale) * most);
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

/* Returns the largest p of the group of keys that begins with the j-th, or before it. */
static double group_peak(const struct row *row, const struct place *at, int64_t j)
{
    double peak = 0.0;
    do {
        peak = fmax(peak, row->p[j++]);
    } while (j < row->keys && (at->begin + j) % HALVED_GROUP != 0);
    return peak;
}

/* Adds what fp16 sums do to y_d, by the scores and by its own sums.  Their weights are relative to
 * the maximum so far: at least that of the group, at most that of the row. */
static void row_output_halved(const struct geometry *g, const struct row *row,
                              const struct place *at, const struct ref_tensors *t, int32_t slot,
                              int64_t d)
{
    const int64_t to = at->y + d;
    const double y = t->value[slot][to], largest = exp(row->peak - row->lse);
    double group = 0.0, least = 0.0;
    for (int64_t j = 0; j < row->keys; j++) {
        const double v = row->factor[j] * g->keys[at->v + key_at(g, at, j) + d];
        if (j == 0 || (at->begin + j) % HALVED_GROUP == 0)
            least = group_peak(row, at, j);
        halved_share(t, slot, to, row->halved[j], (double)g->scale * row->p[j] * (v - y));
        halved_share(t, slot, to,
                     halved_add(&group, at->begin + j, j + 1 == row->keys, row->p[j] * v, least,
                                largest * g->kept),
                     1.0);
    }
}

/* y_d = sum p factor v.  The term covers perturbed scores, the sum itself, and the division by a
 * perturbed sum. */
static void row_output(const struct geometry *g, const struct row *row, const struct place *at,
                       const struct ref_tensors *t, int32_t slot)
{
    for (int64_t d = 0; d < g->size; d++) {
        double sum = 0.0, size = 0.0, shaken = 0.0;
        for (int64_t j = 0; j < row->keys; j++) {
            double v = g->keys[at->v + key_at(g, at, j) + d], part = row->p[j] * row->factor[j] * v;
            sum += part;
            size += fabs(part);
            shaken += fabs(part) * row->relative[j];
            half_add(t, slot, at->y + d,
                     (g->half_u * row->p[j] + g->half_floor) * row->factor[j] * fabs(v));
        }
        t->value[slot][at->y + d] = sum;
        t->term[slot][at->y + d] =
            sqrt((double)row->keys) * size + shaken + fabs(sum) * row->sum_term;
        if (g->halved)
            row_output_halved(g, row, at, t, slot, d);
    }
}

static void row_factors(const struct op_call *call, const struct geometry *g, struct row *row,
                        const struct place *at)
{
    for (int64_t j = 0; j < row->keys; j++)
        row->factor[j] = call->kind == OP_ATTENTION_CACHED
                             ? 1.0
                             : ref_dropout_factor(g->scalars, call->attrs.dropout,
                                                  call->attrs.site + (int32_t)(at->h << 16), at->b,
                                                  at->i * g->time8 + at->begin + j);
}

/* Computes all rows of y, and of lse unless that is NULL. */
static void ref_rows(const struct op_call *call, const struct ref_tensors *t, int32_t y,
                     double *lse, double *lse_term)
{
    struct geometry g = geometry_make(call, t->value);
    struct row row = row_make(g.limit);
    for (int64_t index = 0; index < g.samples * g.heads * g.time; index++) {
        struct place at = place_at(&g, index);
        row.keys = g.position + at.i + 1 - at.begin;
        assert(row.keys <= g.limit);
        row_scores(&g, &row, &at);
        row_softmax(&row);
        row_factors(call, &g, &row, &at);
        row_output(&g, &row, &at, t, y);
        if (lse != NULL) {
            lse[index] = row.lse;
            lse_term[index] = row.lse_term;
        }
        for (int64_t j = 0; lse != NULL && g.halved && j < row.keys; j++)
            halved_share(t, ATTENTION_FORWARD_LSE, index, row.halved[j],
                         (double)g.scale * row.p[j]);
    }
    half_close(t, y, op_elements(call, y));
    if (lse != NULL)
        half_close(t, ATTENTION_FORWARD_LSE, op_elements(call, ATTENTION_FORWARD_LSE));
    row_free(&row);
}

static void ref_attention_forward(const struct op_call *call, const struct ref_tensors *t)
{
    ref_rows(call, t, ATTENTION_FORWARD_Y, t->value[ATTENTION_FORWARD_LSE],
             t->term[ATTENTION_FORWARD_LSE]);
}

/* Returns the first key that the next query of the head sees. */
static int64_t next_begin(const struct geometry *g, const struct place *at)
{
    return at->i + 1 == g->time
               ? INT64_MAX
               : place_at(g, (at->b * g->heads + at->h) * g->time + at->i + 1).begin;
}

/* Adds product k of a gradient, and what fp16 sums do to it: by the score, times the product, by
 * dp, times `slope`, and by its own sum, of which `unit` is 1 in the kernel. */
static void gradient_halved(const struct geometry *g, const struct ref_tensors *t, int64_t i,
                            int64_t k, bool is_last, const struct halved error[2], double product,
                            double slope, double unit)
{
    const int32_t slot = ATTENTION_BACKWARD_DQKV;
    halved_share(t, slot, i, error[0], (double)g->scale * product);
    halved_share(t, slot, i, error[1], slope);
    halved_share(t, slot, i, halved_add(&g->group[i], k, is_last, product, unit, unit), 1.0);
}

/* Adds to the gradients of one query row. */
static void backward_row(const struct geometry *g, const struct ref_tensors *t,
                         const struct row *row, const struct place *at, double lse)
{
    int64_t group = g->heads / g->kv_heads, q = at->q;
    const double *qkv = g->qkv, *dy = t->value[ATTENTION_BACKWARD_DY] + at->y;
    const double *y = t->value[ATTENTION_BACKWARD_Y] + at->y;
    double *out = t->value[ATTENTION_BACKWARD_DQKV], *term = t->term[ATTENTION_BACKWARD_DQKV];
    const int64_t next = next_begin(g, at);
    double scale = (double)g->scale;
    double delta = 0.0, delta_size = 0.0, root = sqrt((double)g->size),
           keys_root = sqrt((double)row->keys);
    for (int64_t d = 0; d < g->size; d++) {
        delta += dy[d] * y[d];
        delta_size += fabs(dy[d] * y[d]);
    }
    for (int64_t j = 0; j < row->keys; j++) {
        int64_t k = at->k + key_at(g, at, j), v = at->v + key_at(g, at, j);
        double p = exp(row->score[j] - lse),
               shaken = row->relative[j] + fabs(row->score[j] - lse) + 1.0;
        double dp = 0.0, dp_size = 0.0, group_dp = 0.0,
               queries_root = sqrt((double)((g->time - at->begin - j) * group));
        struct halved error[2] = {row->halved[j], {.square = 0.0}}; /* of the score, of dp / f */
        for (int64_t d = 0; d < g->size; d++) {
            dp += dy[d] * qkv[v + d] * row->factor[j];
            dp_size += fabs(dy[d] * qkv[v + d] * row->factor[j]);
            if (g->halved)
                error[1] = halved_sum(error[1], halved_add(&group_dp, d, d + 1 == g->size,
                                                           dy[d] * qkv[v + d], 1.0, 1.0));
        }
        double ds = p * (dp - delta) * scale;
        double ds_term =
            p * fabs(scale) * (root * (dp_size + delta_size) + fabs(dp - delta) * (shaken + 2.0));
        double ds_half = g->half_u * fabs(ds) + g->half_floor * fmax(1.0, fabs(scale));
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
            if (!g->halved)
                continue;
            const int64_t key = at->begin + j;
            const double slope = p * row->factor[j] * scale;
            gradient_halved(g, t, q + d, key, j + 1 == row->keys, error, ds * qkv[k + d],
                            slope * qkv[k + d], scale);
            gradient_halved(g, t, k + d, at->i, key < next, error, ds * qkv[q + d],
                            slope * qkv[q + d], scale);
            gradient_halved(g, t, v + d, at->i, key < next, error, weight, 0.0, g->kept);
        }
    }
}

static void ref_attention_backward(const struct op_call *call, const struct ref_tensors *t)
{
    struct geometry g = geometry_make(call, t->value);
    struct row row = row_make(g.time);
    int64_t elements = g.samples * g.time * g.width;
    g.group = calloc((size_t)elements, sizeof *g.group);
    if (g.group == NULL)
        abort();
    for (int64_t i = 0; i < elements; i++)
        t->value[ATTENTION_BACKWARD_DQKV][i] = t->term[ATTENTION_BACKWARD_DQKV][i] = 0.0;
    for (int64_t index = 0; index < g.samples * g.heads * g.time; index++) {
        struct place at = place_at(&g, index);
        row.keys = at.i + 1 - at.begin;
        row_scores(&g, &row, &at);
        row_factors(call, &g, &row, &at);
        backward_row(&g, t, &row, &at, t->value[ATTENTION_BACKWARD_LSE][index]);
    }
    half_close(t, ATTENTION_BACKWARD_DQKV, elements);
    free(g.group);
    row_free(&row);
}

/* Writes k and v of the new rows to cache[2, B, capacity, KV D], as a 16-bit dtype stores them;
 * `rows` of them. */
static void cache_append(const struct geometry *g, double *cache, int64_t position, int64_t rows)
{
    for (int64_t n = 0; n < rows; n++) {
        for (int64_t c = 0; c < 2 * g->key_row; c++) {
            int64_t half = c / g->key_row, slot = (half * g->samples + n / g->time) * g->limit +
                                                  (position + n % g->time) % g->limit;
            double x = g->qkv[n * g->width + g->heads * g->size + c];
            cache[slot * g->key_row + c % g->key_row] =
                g->dtype == DTYPE_F32 ? x : ref_rounded(g->dtype, x);
        }
    }
}

/* What is not appended keeps its bits. */
static void ref_attention_cached(const struct op_call *call, const struct ref_tensors *t)
{
    struct geometry g = geometry_make(call, t->value);
    for (int64_t i = 0; i < 2 * g.samples * g.key_sample; i++)
        t->term[ATTENTION_CACHED_CACHE][i] = REF_EXACT;
    cache_append(&g, t->value[ATTENTION_CACHED_CACHE], g.position, g.samples * g.time);
    ref_rows(call, t, ATTENTION_CACHED_Y, NULL, NULL);
}

static const int64_t head_sizes[] = {16, 32, 48, 64, 128, 1, 5, 24, 42, 56, 256, 96, 80};

/* Draws heads, key-value heads, head size and dropout; returns the number of rows. */
static int64_t attention_shape(struct maker *maker, int64_t time, int64_t *out_width,
                               int64_t *out_size)
{
    static const int32_t heads[][2] = {{1, 1}, {2, 2}, {3, 3}, {4, 2}, {4, 1}, {6, 3}};
    static const float rates[] = {0.0f, 0.1f, 0.5f, 0.0f};
    static const int32_t windows[] = {20, 1, 64, 7, 33, 100, 16};
    struct op_attrs *a = case_attrs(maker);
    int64_t pair = maker->index % COUNT(heads),
            samples = time > 65 ? 1 : 1 + random_below(&maker->random, 2);
    *out_size = head_sizes[maker->index / 2 % COUNT(head_sizes)];
    a->time = (int32_t)time;
    a->heads = heads[pair][0];
    a->kv_heads = heads[pair][1];
    if (maker->index / 2 == 39 ||
        maker->index / 2 == 59) { /* one layer of the 124M model, with few rows */
        a->heads = a->kv_heads = 12;
        *out_size = 64;
    }
    a->softmax_scale = (float)(1.0 / sqrt((double)*out_size));
    a->dropout =
        maker->check->call.kind == OP_ATTENTION_CACHED ? 0.0f : rates[maker->index / 3 % 4];
    if (time == 1)
        a->dropout = 0.0f; /* a row of one key that is dropped shows nothing */
    a->site = (int32_t)(1 + random_below(&maker->random, 40));
    a->window = maker->index % 3 == 1 ? windows[maker->index / 3 % COUNT(windows)] : 0;
    *out_width = (a->heads + 2 * a->kv_heads) * *out_size;
    return samples * time;
}

static void make_attention_forward(struct maker *maker)
{
    int64_t width = 0, size = 0,
            rows = attention_shape(maker, case_size(maker, 129), &width, &size);
    case_tensor(maker, ATTENTION_FORWARD_QKV, maker->dtype, rows, width);
    case_scalars(maker, ATTENTION_FORWARD_SCALARS);
    case_documents(maker, ATTENTION_FORWARD_FIRST, rows);
}

static void make_attention_backward(struct maker *maker)
{
    int64_t width = 0, size = 0,
            rows = attention_shape(maker, case_size(maker, 129), &width, &size);
    const struct op_attrs *a = case_attrs(maker);
    case_tensor(maker, ATTENTION_BACKWARD_DY, maker->dtype, rows, a->heads * size);
    case_tensor(maker, ATTENTION_BACKWARD_QKV, maker->dtype, rows, width);
    case_tensor(maker, ATTENTION_BACKWARD_Y, maker->dtype, rows, a->heads * size);
    case_tensor(maker, ATTENTION_BACKWARD_LSE, DTYPE_F32, rows / a->time, a->heads);
    maker->check->call.operand[ATTENTION_BACKWARD_LSE].rank = 3;
    maker->check->call.operand[ATTENTION_BACKWARD_LSE].dims[2] = a->time;
    case_scalars(maker, ATTENTION_BACKWARD_SCALARS);
    case_documents(maker, ATTENTION_BACKWARD_FIRST, rows);
}

static void make_attention_cached(struct maker *maker)
{
    int64_t time = maker->index % 2 != 0 ? 1
                   : maker->index == 78  ? 33
                                         : case_size(maker, 33),
            width = 0, size = 0;
    int64_t rows = attention_shape(maker, time, &width, &size);
    struct operand *cache = &maker->check->call.operand[ATTENTION_CACHED_CACHE];
    case_tensor(maker, ATTENTION_CACHED_QKV, maker->dtype, rows, width);
    case_scalars(maker, ATTENTION_CACHED_SCALARS);
    case_tensor(maker, ATTENTION_CACHED_CACHE, maker->dtype, 2, rows / time);
    cache->rank = 4;
    cache->dims[2] =
        time + (maker->index % 4 == 0 ? 0 : random_below(&maker->random, 70)); /* 0: becomes full */
    if (case_attrs(maker)->window > 0)
        cache->dims[2] = op_cache_rows(case_attrs(maker)->window, time, cache->dims[2] * 4);
    cache->dims[3] = case_attrs(maker)->kv_heads * size;
}

#define BENCH_HEADS 12

static void bench_attention(struct maker *maker)
{
    struct op_attrs *a = case_attrs(maker);
    a->heads = a->kv_heads = BENCH_HEADS;
    a->dropout = 0.0f;
    a->softmax_scale = 0.125f;
    a->time = maker->check->call.kind == OP_ATTENTION_CACHED ? 1 : BENCH_TIME;
}

/* Multiplies v, the last part of every row of qkv, by `factor`. */
static void scale_values(const struct check_case *check, int32_t slot, double *qkv, double factor)
{
    const struct op_attrs *attrs = &check->call.attrs;
    int64_t width = case_operand(check, slot)->dims[1],
            size = width / (attrs->heads + 2 * attrs->kv_heads);
    for (int64_t i = 0, count = operand_elements(case_operand(check, slot)); i < count; i++)
        qkv[i] *= i % width >= (attrs->heads + attrs->kv_heads) * size ? factor : 1.0;
}

static void inputs_attention_forward(const struct check_case *check, double *const *value,
                                     struct random *random)
{
    inputs_documents(check, value[ATTENTION_FORWARD_FIRST], random);
    double factor = check->inputs == INPUTS_LARGE ? 4.0 : check->inputs == INPUTS_SMALL ? 0.1 : 1.0;
    inputs_scale(check, ATTENTION_FORWARD_QKV, value[ATTENTION_FORWARD_QKV], factor, 0.0);
    if (check->inputs == INPUTS_HUGE)
        scale_values(check, ATTENTION_FORWARD_QKV, value[ATTENTION_FORWARD_QKV], HUGE_SCALE);
}

/* lse and y come from the oracle's forward, rounded as they would be stored.  In "huge" cases dv
 * sums large dy of one sign, and small values keep ds, which a backend may round to 16 bits, far
 * from overflow. */
static void inputs_attention_backward(const struct check_case *check, double *const *value,
                                      struct random *random)
{
    struct check_case forward = {
        .call = {.kind = OP_ATTENTION_FORWARD, .attrs = check->call.attrs}};
    struct ref_tensors tensors = {.value = {NULL}};
    inputs_documents(check, value[ATTENTION_BACKWARD_FIRST], random);
    tensors.value[ATTENTION_FORWARD_FIRST] = value[ATTENTION_BACKWARD_FIRST];
    double factor = check->inputs == INPUTS_LARGE ? 3.0 : check->inputs == INPUTS_SMALL ? 0.1 : 1.0;
    inputs_scale(check, ATTENTION_BACKWARD_QKV, value[ATTENTION_BACKWARD_QKV], factor, 0.0);
    if (check->inputs == INPUTS_HUGE) {
        scale_values(check, ATTENTION_BACKWARD_QKV, value[ATTENTION_BACKWARD_QKV], 1e-3);
        inputs_scale(check, ATTENTION_BACKWARD_DY, value[ATTENTION_BACKWARD_DY], HUGE_SCALE / 4.0,
                     HUGE_SCALE);
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

static void inputs_attention_cached(const struct check_case *check, double *const *value,
                                    struct random *random)
{
    int64_t capacity = case_operand(check, ATTENTION_CACHED_CACHE)->dims[2];
    if (check->inputs == INPUTS_HUGE)
        scale_values(check, ATTENTION_CACHED_QKV, value[ATTENTION_CACHED_QKV], HUGE_SCALE);
    const int64_t most = capacity - check->call.attrs.time;
    value[ATTENTION_CACHED_SCALARS][SCALAR_POSITION] =
        (double)random_below(random, most + (op_cache_is_ring(&check->call) ? 4 * capacity : 1));
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
    .bench = bench_attention,
    .bench_dims = {{ATTENTION_FORWARD_QKV, {BENCH_ROWS, 3 * BENCH_CHANNELS}}},
    .inputs = inputs_attention_forward,
    .ref = ref_attention_forward,
    .has_many_variants = true,
    .shared_by = forward_shared_by,
};

const struct op_test test_attention_backward = {
    .shape = make_attention_backward,
    .bench = bench_attention,
    .bench_dims = {{ATTENTION_BACKWARD_DY, {BENCH_ROWS, BENCH_CHANNELS}},
                   {ATTENTION_BACKWARD_QKV, {BENCH_ROWS, 3 * BENCH_CHANNELS}},
                   {ATTENTION_BACKWARD_Y, {BENCH_ROWS, BENCH_CHANNELS}},
                   {ATTENTION_BACKWARD_LSE, {BENCH_SAMPLES, BENCH_HEADS, BENCH_TIME}}},
    .inputs = inputs_attention_backward,
    .ref = ref_attention_backward,
    .has_many_variants = true,
    .shared_by = backward_shared_by,
};

const struct op_test test_attention_cached = {
    .shape = make_attention_cached,
    .bench = bench_attention,
    .bench_dims = {{ATTENTION_CACHED_QKV, {BENCH_SAMPLES, 3 * BENCH_CHANNELS}},
                   {ATTENTION_CACHED_CACHE, {2, BENCH_SAMPLES, BENCH_TIME, BENCH_CHANNELS}}},
    .inputs = inputs_attention_cached,
    .ref = ref_attention_cached,
    .shared_by = forward_shared_by,
};
