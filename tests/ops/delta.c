/* The gated delta rule.  The oracle goes from row to row, with no chunk but for the states.
 *
 * What S and its gradient are off by is bounded for each column, by the norm over the key's
 * elements: k has norm 1, so that I - beta k k' does not increase it.  `size` is the norm that the
 * column's parts would have without cancelling, which is what kernels add up.  The terms are
 * derived in tests/opcheck/bounds.md.
 */
#include <math.h>
#include <stdlib.h>

#include "tests/ops/op_test.h"

#define CHUNK OP_DELTA_CHUNK
#define CHUNK_ROOT 8.0 /* of its rows */

struct shape {
    int64_t time, heads, key_heads, size, row, chunks;
    const double *x, *decay, *first;
};

/* A row of a head: normalised q and k, their relative terms; g, e^g and beta with theirs; sums of
 * |g| from the chunk's first row on; v. */
struct row {
    double q[256], k[256], q_term, k_term, root;
    double g, g_term, keep, beta, exponents;
    double z, a_exp;
    const double *v;
    bool begins;
};

/* S or its gradient [size, size] with the columns' sizes and errors. */
struct state {
    double *at, *size, *error;
};

static double *space(int64_t count)
{
    double *out = calloc((size_t)count, sizeof *out);
    if (out == NULL)
        abort();
    return out;
}

static struct shape shape_of(const struct op_call *call, double *const *value)
{
    return (struct shape){
        .time = call->attrs.time,
        .heads = call->attrs.heads,
        .key_heads = call->attrs.kv_heads,
        .size = op_delta_size(call, 0),
        .row = op_columns(call, 0),
        .chunks = op_delta_chunks(call),
        .x = value[GATED_DELTA_FORWARD_X],
        .decay = value[GATED_DELTA_FORWARD_DECAY],
        .first = call->kind == OP_GATED_DELTA_CACHED ? NULL : value[GATED_DELTA_FORWARD_FIRST]};
}

/* Normalises x[size] times `factor`; returns its relative term. */
static double normalise(const double *x, int64_t size, double factor, double *out)
{
    double square = 0.0;
    for (int64_t d = 0; d < size; d++)
        square += x[d] * x[d];
    double r = 1.0 / sqrt(square + 1e-6);
    for (int64_t d = 0; d < size; d++)
        out[d] = x[d] * r * factor;
    return 0.5 * (sqrt((double)size) + 1.0) * square * r * r + 4.0;
}

/* Reads row t of the sample that begins at row n; `exponents` is that of the row before. */
static void row_read(const struct shape *s, int64_t n, int64_t t, int64_t head, double exponents,
                     struct row *out)
{
    const double *x = s->x + (n + t) * s->row, *gates = x + s->row - 2 * s->heads;
    int64_t key = head / (s->heads / s->key_heads), size = s->size;
    double d = s->decay[s->heads + head], z = gates[s->heads + head] + d,
           soft = z > 0.0 ? z + log1p(exp(-z)) : log1p(exp(z));
    out->root = sqrt((double)size);
    out->q_term = normalise(x + key * size, size, 1.0 / out->root, out->q);
    out->k_term = normalise(x + (s->key_heads + key) * size, size, 1.0, out->k);
    out->v = x + (2 * s->key_heads + head) * size;
    out->a_exp = exp(s->decay[head]);
    out->z = z;
    out->g = -out->a_exp * soft;
    out->g_term = out->a_exp * (3.0 * soft + fabs(z) / (1.0 + exp(-z))) +
                  fabs(out->g) * (1.0 + fabs(s->decay[head]));
    out->exponents = (t % CHUNK == 0 ? 0.0 : exponents) + fabs(out->g);
    out->begins = s->first != NULL ? (int64_t)s->first[n + t] == t : false;
    out->keep = out->begins ? 0.0 : exp(out->g);
    out->beta = 1.0 / (1.0 + exp(-gates[head]));
}

/* The relative error of a product of decays: sums of exponents differ by those of one chunk. */
static double decay_term(const struct row *row)
{
    return CHUNK_ROOT * row->exponents + 1.0;
}

static double column_norm(const double *at, int64_t size, int64_t c)
{
    double square = 0.0;
    for (int64_t d = 0; d < size; d++)
        square += at[d * size + c] * at[d * size + c];
    return sqrt(square);
}

/* What a row computes from S: u and v - S'k, with the errors that do not come from that of S. */
struct update {
    double *u, *rest, *own, *from_state; /* from_state: the error of e^g S in each column */
    double *size, *decayed;              /* of e^g S: sizes, and all of it */
};

/* S <- e^g S + k u'. */
static void row_update(const struct shape *s, const struct row *row, const struct state *state,
                       const struct update *out)
{
    const int64_t size = s->size;
    for (int64_t c = 0; c < size; c++) {
        double kv = 0.0;
        for (int64_t d = 0; d < size; d++) {
            state->at[d * size + c] *= row->keep;
            out->decayed[d * size + c] = state->at[d * size + c];
            kv += row->k[d] * state->at[d * size + c];
        }
        state->size[c] *= row->keep;
        state->error[c] =
            row->keep * state->error[c] + state->size[c] * (row->g_term + fabs(row->g) + 1.0);
        out->size[c] = state->size[c];
        out->from_state[c] = state->error[c];
        double rest = row->v[c] - kv, u = row->beta * rest;
        double own = state->size[c] * (row->root + CHUNK_ROOT + row->k_term + decay_term(row)) +
                     fabs(row->v[c]) + fabs(kv);
        out->rest[c] = rest;
        out->u[c] = u;
        out->own[c] = row->beta * own + 6.0 * fabs(u);
        state->error[c] += out->own[c] + fabs(u) * (row->k_term + 1.0);
        state->size[c] += fabs(u);
        for (int64_t d = 0; d < size; d++)
            state->at[d * size + c] += row->k[d] * u;
    }
}

/* At the end of a chunk all that it wrote is one sum. */
static void chunk_close(const struct shape *s, const struct row *row, const struct state *state)
{
    for (int64_t c = 0; c < s->size; c++)
        state->error[c] += state->size[c] * (CHUNK_ROOT + decay_term(row) + row->k_term);
}

static void row_output(const struct shape *s, const struct row *row, const struct state *state,
                       double *y, double *term)
{
    for (int64_t c = 0; c < s->size; c++) {
        double sum = 0.0;
        for (int64_t d = 0; d < s->size; d++)
            sum += row->q[d] * state->at[d * s->size + c];
        y[c] = sum;
        term[c] = (state->size[c] * (row->root + CHUNK_ROOT + row->q_term + decay_term(row) + 2.0) +
                   state->error[c]) /
                  row->root;
    }
}

static struct state state_make(int64_t size)
{
    return (struct state){space(size * size), space(size), space(size)};
}

static void state_free(const struct state *state)
{
    free(state->at);
    free(state->size);
    free(state->error);
}

static struct update update_make(int64_t size)
{
    double *at = space(5 * size + size * size);
    return (struct update){at,           at + size, at + 2 * size, at + 3 * size, at + 4 * size,
                           at + 5 * size};
}

static void state_load(const struct shape *s, const double *from, const struct state *state)
{
    for (int64_t i = 0; i < s->size * s->size; i++)
        state->at[i] = from != NULL ? from[i] : 0.0;
    for (int64_t c = 0; c < s->size; c++) {
        state->size[c] = column_norm(state->at, s->size, c);
        state->error[c] = 0.0;
    }
}

static void state_store(const struct shape *s, const struct state *state, double *to, double *term)
{
    for (int64_t i = 0; i < s->size * s->size; i++) {
        to[i] = state->at[i];
        term[i] = state->error[i % s->size] + fabs(to[i]);
    }
}

/* All rows of a head of sample b; `state` is its S, before and behind. */
static void head_forward(const struct shape *s, int64_t b, int64_t head, const struct state *state,
                         const struct update *update, const struct ref_tensors *t)
{
    const bool cached = t->value[GATED_DELTA_FORWARD_STATES] == NULL;
    const int64_t square = s->size * s->size, n = b * s->time;
    struct row row = {.exponents = 0.0};
    for (int64_t i = 0; i < s->time; i++) {
        const int64_t place = ((b * s->heads + head) * s->chunks + i / CHUNK) * square,
                      y = ((n + i) * s->heads + head) * s->size;
        if (i % CHUNK == 0 && i > 0)
            chunk_close(s, &row, state);
        if (i % CHUNK == 0 && !cached)
            state_store(s, state, t->value[GATED_DELTA_FORWARD_STATES] + place,
                        t->term[GATED_DELTA_FORWARD_STATES] + place);
        row_read(s, n, i, head, row.exponents, &row);
        row_update(s, &row, state, update);
        row_output(s, &row, state, t->value[GATED_DELTA_FORWARD_Y] + y,
                   t->term[GATED_DELTA_FORWARD_Y] + y);
    }
    chunk_close(s, &row, state);
}

static void ref_gated_delta_forward(const struct op_call *call, const struct ref_tensors *t)
{
    const struct shape s = shape_of(call, t->value);
    const struct state state = state_make(s.size);
    const struct update update = update_make(s.size);
    for (int64_t i = 0; i < op_rows(call, 0) / s.time * s.heads; i++) {
        state_load(&s, NULL, &state);
        head_forward(&s, i / s.heads, i % s.heads, &state, &update, t);
    }
    state_free(&state);
    free(update.u);
}

static void ref_gated_delta_cached(const struct op_call *call, const struct ref_tensors *t)
{
    const struct shape s = shape_of(call, t->value);
    const struct state state = state_make(s.size);
    const struct update update = update_make(s.size);
    const bool continues = t->value[GATED_DELTA_CACHED_SCALARS][SCALAR_POSITION] > 0.0;
    struct ref_tensors rows = {.value = {NULL}};
    rows.value[GATED_DELTA_FORWARD_Y] = t->value[GATED_DELTA_CACHED_Y];
    rows.term[GATED_DELTA_FORWARD_Y] = t->term[GATED_DELTA_CACHED_Y];
    for (int64_t i = 0; i < op_rows(call, 0) / s.time * s.heads; i++) {
        double *at = t->value[GATED_DELTA_CACHED_STATE] + i * s.size * s.size;
        state_load(&s, continues ? at : NULL, &state);
        head_forward(&s, i / s.heads, i % s.heads, &state, &update, &rows);
        state_store(&s, &state, at, t->term[GATED_DELTA_CACHED_STATE] + i * s.size * s.size);
    }
    state_free(&state);
    free(update.u);
}

/* ---- the backward ---- */

/* Gradients of a head's rows before the norms: dq and dk [time, size] with one term a row, summed
 * over the heads of a group. */
struct sums {
    double *dq, *dk, *dq_term, *dk_term;
};

/* The rows of a chunk, kept by its forward: S behind each, its sizes and errors, and the updates.
 */
struct kept {
    struct row row[CHUNK];
    struct state state[CHUNK];
    struct update update[CHUNK];
};

static double column_dot(const double *a, const double *b, int64_t size, int64_t c)
{
    double sum = 0.0;
    for (int64_t d = 0; d < size; d++)
        sum += a[d * size + c] * b[d * size + c];
    return sum;
}

/* What the exponents of a chunk's rows contribute from a row on: how much, and its error. */
struct exponents {
    double size, error;
};

/* The results of a row. */
struct row_gradient {
    double *dv, *dv_term;
    double dg, dg_term, dbeta, dbeta_term;
};

/* Goes through one row backward: `back` is the gradient of S behind the row, then of S before. */
static void row_backward(const struct shape *s, const struct row *row, const struct state *state,
                         const struct update *of, const double *dy, const struct state *back,
                         double *dq, double *dk, double *dq_term, double *dk_term,
                         struct exponents *chunk, struct row_gradient *out)
{
    const int64_t size = s->size;
    const double local = row->root + CHUNK_ROOT + decay_term(row) + 1.0, q_norm = 1.0 / row->root;
    for (int64_t c = 0; c < size; c++) {
        double dw = 0.0;
        for (int64_t d = 0; d < size; d++) {
            dq[d] += state->at[d * size + c] * dy[c];
            back->at[d * size + c] += row->q[d] * dy[c];
            dw += row->k[d] * back->at[d * size + c];
            dk[d] += back->at[d * size + c] * of->u[c];
        }
        const double e_state = state->size[c] * local + state->error[c];
        *dq_term += e_state * fabs(dy[c]);
        back->size[c] += q_norm * fabs(dy[c]);
        back->error[c] += q_norm * fabs(dy[c]) * (row->q_term + 1.0);
        const double own = back->size[c] * (local + row->k_term), e_w = own + back->error[c],
                     e_u = of->own[c] + row->beta * of->from_state[c];
        *dk_term += (back->size[c] * local + back->error[c]) * fabs(of->u[c]) + back->size[c] * e_u;
        out->dv[c] = row->beta * dw;
        out->dv_term[c] = row->beta * e_w + 6.0 * fabs(out->dv[c]);
        out->dbeta += dw * of->rest[c];
        out->dbeta_term +=
            e_w * fabs(of->rest[c]) + fabs(dw) * (of->own[c] / row->beta + of->from_state[c]) +
            (row->root + CHUNK_ROOT) * fabs(dw * of->rest[c]) + back->size[c] * of->size[c] * local;
        for (int64_t d = 0; d < size; d++) {
            dk[d] -= of->decayed[d * size + c] * row->beta * dw;
            back->at[d * size + c] -= row->k[d] * row->beta * dw;
        }
        *dk_term += (of->size[c] * local + of->from_state[c]) * fabs(row->beta * dw) +
                    of->size[c] * row->beta * e_w;
        chunk->size += state->size[c] * q_norm * fabs(dy[c]) + back->size[c] * fabs(of->u[c]) +
                       of->size[c] * fabs(row->beta * dw);
        chunk->error += e_state * q_norm * fabs(dy[c]) + e_w * fabs(of->u[c]) +
                        back->size[c] * e_u +
                        (of->size[c] * local + of->from_state[c]) * fabs(row->beta * dw) +
                        of->size[c] * row->beta * e_w;
        back->size[c] += fabs(row->beta * dw);
        back->error[c] += fabs(row->beta * dw) * (row->k_term + 6.0) + row->beta * own;
        out->dg += column_dot(back->at, of->decayed, size, c);
    }
    out->dg = row->begins ? 0.0 : out->dg;
    out->dg_term = chunk->error + (CHUNK_ROOT + row->k_term + row->q_term) * chunk->size;
    for (int64_t c = 0; c < size; c++) {
        for (int64_t d = 0; d < size; d++)
            back->at[d * size + c] *= row->keep;
        back->size[c] *= row->keep;
        back->error[c] =
            row->keep * back->error[c] + back->size[c] * (row->g_term + fabs(row->g) + 1.0);
    }
}

/* Writes the gradients of b and a of a row, and adds those of decay. */
static void gates_gradient(const struct shape *s, const struct row *row, int64_t n, int64_t head,
                           const struct row_gradient *g, const struct ref_tensors *t)
{
    double *dx = t->value[GATED_DELTA_BACKWARD_DX], *term = t->term[GATED_DELTA_BACKWARD_DX],
           *dd = t->value[GATED_DELTA_BACKWARD_DDECAY],
           *dd_term = t->term[GATED_DELTA_BACKWARD_DDECAY];
    const int64_t b = (n + 1) * s->row - 2 * s->heads + head, a = b + s->heads;
    const double s_z = 1.0 / (1.0 + exp(-row->z)), slope = row->beta / (1.0 + exp(s->x[b]));
    const double dz = -row->a_exp * s_z * g->dg, many = 12.0,
                 dz_term = row->a_exp * s_z * g->dg_term +
                           fabs(dz) * (8.0 + fabs(row->z) + fabs(s->decay[head]));
    dx[b] = g->dbeta * slope;
    term[b] = g->dbeta_term * slope + 8.0 * fabs(dx[b]);
    dx[a] = dz;
    term[a] = dz_term;
    dd[head] += g->dg * row->g;
    dd_term[head] +=
        (many + 4.0) * fabs(g->dg * row->g) + g->dg_term * fabs(row->g) + fabs(g->dg) * row->g_term;
    dd[s->heads + head] += dz;
    dd_term[s->heads + head] += many * fabs(dz) + dz_term;
}

/* The exponent of the chunk's first S and last row: what is left of S times its gradient. */
static struct exponents chunk_exponents(const struct shape *s, const struct row *last,
                                        const double *first, const struct state *back)
{
    struct exponents out = {0.0, 0.0};
    for (int64_t c = 0; c < s->size; c++) {
        const double norm = column_norm(first, s->size, c);
        out.size += norm * back->size[c];
        out.error += norm * (back->size[c] * ((double)s->size + decay_term(last)) + back->error[c]);
    }
    return out;
}

/* The rows of a chunk of a head, forward and backward. */
static void chunk_backward(const struct shape *s, int64_t b, int64_t head, int64_t chunk,
                           const struct state *back, struct kept *kept, const struct sums *sums,
                           const struct ref_tensors *t)
{
    const int64_t size = s->size, from = chunk * CHUNK, n = b * s->time,
                  end = from + CHUNK < s->time ? from + CHUNK : s->time;
    const double *first = t->value[GATED_DELTA_BACKWARD_STATES] +
                          ((b * s->heads + head) * s->chunks + chunk) * size * size;
    const struct state state = state_make(size);
    double exponents = 0.0;
    state_load(s, first, &state);
    for (int64_t i = from; i < end; i++) {
        struct row *row = &kept->row[i - from];
        row_read(s, n, i, head, exponents, row);
        exponents = row->exponents;
        row_update(s, row, &state, &kept->update[i - from]);
        for (int64_t k = 0; k < size * size; k++)
            kept->state[i - from].at[k] = state.at[k];
        for (int64_t c = 0; c < size; c++) {
            kept->state[i - from].size[c] = state.size[c];
            kept->state[i - from].error[c] = state.error[c];
        }
    }
    struct exponents of_chunk = chunk_exponents(s, &kept->row[end - 1 - from], first, back);
    for (int64_t i = end - 1; i >= from; i--) {
        const int64_t at = (n + i) * s->row + (2 * s->key_heads + head) * size;
        struct row_gradient g = {.dv = t->value[GATED_DELTA_BACKWARD_DX] + at,
                                 .dv_term = t->term[GATED_DELTA_BACKWARD_DX] + at};
        row_backward(s, &kept->row[i - from], &kept->state[i - from], &kept->update[i - from],
                     t->value[GATED_DELTA_BACKWARD_DY] + ((n + i) * s->heads + head) * size, back,
                     sums->dq + i * size, sums->dk + i * size, sums->dq_term + i, sums->dk_term + i,
                     &of_chunk, &g);
        gates_gradient(s, &kept->row[i - from], n + i, head, &g, t);
    }
    for (int64_t c = 0; c < size; c++)
        back->error[c] += back->size[c] * (CHUNK_ROOT + decay_term(&kept->row[0]));
    state_free(&state);
}

/* dx[size] of q or k at `at`, from the gradient of its normalised form times `factor`. */
static void normal_gradient(const struct shape *s, int64_t at, double factor, const double *dy,
                            double term, const struct ref_tensors *t)
{
    double xh[256], square = 0.0, dot = 0.0, dot_size = 0.0, all = 0.0,
                    relative = normalise(s->x + at, s->size, 1.0, xh), root = sqrt((double)s->size);
    for (int64_t d = 0; d < s->size; d++) {
        square += s->x[at + d] * s->x[at + d];
        dot += xh[d] * dy[d];
        dot_size += fabs(xh[d] * dy[d]);
        all += fabs(xh[d]);
    }
    double scale = factor / sqrt(square + 1e-6);
    for (int64_t d = 0; d < s->size; d++) {
        t->value[GATED_DELTA_BACKWARD_DX][at + d] = scale * (dy[d] - xh[d] * dot);
        t->term[GATED_DELTA_BACKWARD_DX][at + d] =
            scale *
            (term * (1.0 + fabs(xh[d]) * all) + (CHUNK_ROOT + relative + 3.0) * fabs(dy[d]) +
             fabs(xh[d]) * dot_size * (root + CHUNK_ROOT + 3.0 * relative + 3.0));
    }
}

static struct kept *kept_make(int64_t size)
{
    struct kept *kept = malloc(sizeof *kept);
    if (kept == NULL)
        abort();
    for (int64_t i = 0; i < CHUNK; i++) {
        kept->state[i] = state_make(size);
        kept->update[i] = update_make(size);
    }
    return kept;
}

static void kept_free(struct kept *kept)
{
    for (int64_t i = 0; i < CHUNK; i++) {
        state_free(&kept->state[i]);
        free(kept->update[i].u);
    }
    free(kept);
}

/* The heads of key head `key` of sample b. */
static void key_backward(const struct shape *s, int64_t b, int64_t key, struct kept *kept,
                         const struct ref_tensors *t)
{
    const int64_t size = s->size, group = s->heads / s->key_heads;
    double *memory = space(2 * s->time * (size + 1));
    const struct sums sums = {memory, memory + s->time * size, memory + 2 * s->time * size,
                              memory + 2 * s->time * size + s->time};
    const struct state back = state_make(size);
    for (int64_t head = key * group; head < (key + 1) * group; head++) {
        state_load(s, NULL, &back);
        for (int64_t chunk = s->chunks - 1; chunk >= 0; chunk--)
            chunk_backward(s, b, head, chunk, &back, kept, &sums, t);
    }
    for (int64_t i = 0; i < s->time; i++) {
        const int64_t at = (b * s->time + i) * s->row + key * size;
        normal_gradient(s, at, 1.0 / sqrt((double)size), sums.dq + i * size, sums.dq_term[i], t);
        normal_gradient(s, at + s->key_heads * size, 1.0, sums.dk + i * size, sums.dk_term[i], t);
    }
    state_free(&back);
    free(memory);
}

static void ref_gated_delta_backward(const struct op_call *call, const struct ref_tensors *t)
{
    const struct shape s = shape_of(call, t->value);
    struct kept *kept = kept_make(s.size);
    for (int64_t i = 0; i < 2 * s.heads; i++) {
        t->value[GATED_DELTA_BACKWARD_DDECAY][i] =
            ref_before(call, t, GATED_DELTA_BACKWARD_DDECAY, i);
        t->term[GATED_DELTA_BACKWARD_DDECAY][i] =
            12.0 * fabs(t->value[GATED_DELTA_BACKWARD_DDECAY][i]);
    }
    for (int64_t i = 0; i < op_rows(call, 0) / s.time * s.key_heads; i++)
        key_backward(&s, i / s.key_heads, i % s.key_heads, kept, t);
    kept_free(kept);
}

/* ---- cases ---- */

static void delta_shape(struct maker *maker, int64_t time)
{
    static const int32_t heads[][2] = {{1, 1}, {2, 2}, {2, 1}, {4, 2}, {3, 3}};
    static const int64_t sizes[] = {16, 8, 1, 32, 5, 24, 3, 48};
    struct op_attrs *a = case_attrs(maker);
    int64_t size = sizes[maker->index / 2 % COUNT(sizes)],
            samples = time > 65 ? 1 : 1 + random_below(&maker->random, 2);
    a->time = (int32_t)time;
    a->heads = heads[maker->index % COUNT(heads)][0];
    a->kv_heads = heads[maker->index % COUNT(heads)][1];
    if (maker->index == 40) { /* one head of the published models */
        a->heads = a->kv_heads = 1;
        size = 128;
    }
    size = size < 8 * time ? size : 8 * time; /* else most of the output is the first S, 0 */
    case_tensor(maker, GATED_DELTA_FORWARD_X, maker->dtype, samples * time,
                (a->heads + 2 * a->kv_heads) * size + 2 * a->heads);
    case_tensor(maker, GATED_DELTA_FORWARD_DECAY, maker->kept, 2 * a->heads, 0);
}

static void make_gated_delta_forward(struct maker *maker)
{
    delta_shape(maker, case_size(maker, 129));
    case_documents(maker, GATED_DELTA_FORWARD_FIRST, case_operand(maker->check, 0)->dims[0]);
}

static void make_gated_delta_backward(struct maker *maker)
{
    make_gated_delta_forward(maker);
    const struct op_call *call = &maker->check->call;
    const int64_t rows = op_rows(call, 0), size = op_delta_size(call, 0);
    struct operand *states = &maker->check->call.operand[GATED_DELTA_BACKWARD_STATES];
    case_tensor(maker, GATED_DELTA_BACKWARD_DY, maker->dtype, rows, call->attrs.heads * size);
    case_tensor(maker, GATED_DELTA_BACKWARD_STATES, DTYPE_F32,
                rows / call->attrs.time * call->attrs.heads, op_delta_chunks(call));
    states->rank = 4;
    states->dims[2] = states->dims[3] = size;
    case_tensor(maker, GATED_DELTA_BACKWARD_DDECAY, maker->kept, 2 * call->attrs.heads, 0);
    case_accumulate(maker, maker->index % 4 < 2 ? 1u << GATED_DELTA_BACKWARD_DDECAY : 0u);
}

static void make_gated_delta_cached(struct maker *maker)
{
    delta_shape(maker, maker->index % 2 != 0 ? 1 : case_size(maker, 129));
    const struct op_call *call = &maker->check->call;
    const int64_t size = op_delta_size(call, 0);
    struct operand *state = &maker->check->call.operand[GATED_DELTA_CACHED_STATE];
    case_scalars(maker, GATED_DELTA_CACHED_SCALARS);
    case_tensor(maker, GATED_DELTA_CACHED_STATE, DTYPE_F32,
                op_rows(call, 0) / call->attrs.time * call->attrs.heads, size);
    state->rank = 3;
    state->dims[2] = size;
}

#define BENCH_HEADS 6
#define BENCH_SIZE 128
static void bench_delta(struct maker *maker)
{
    case_attrs(maker)->heads = case_attrs(maker)->kv_heads = BENCH_HEADS;
    case_attrs(maker)->time = maker->check->call.kind == OP_GATED_DELTA_CACHED ? 1 : BENCH_TIME;
    case_tensor(maker, GATED_DELTA_FORWARD_DECAY, maker->kept, 2 * BENCH_HEADS, 0);
    if (case_operand(maker->check, GATED_DELTA_BACKWARD_DDECAY)->present)
        case_tensor(maker, GATED_DELTA_BACKWARD_DDECAY, maker->kept, 2 * BENCH_HEADS, 0);
}

/* Decays of 0.1 to 0.99 a row in most cases, so that documents' rows matter to later ones. */
static void inputs_delta(const struct check_case *check, double *const *value,
                         struct random *random)
{
    const int64_t heads = check->call.attrs.heads;
    double *x = value[GATED_DELTA_FORWARD_X], *decay = value[GATED_DELTA_FORWARD_DECAY];
    for (int64_t i = 0; i < heads; i++)
        decay[i] -= check->inputs == INPUTS_LARGE ? 0.0 : 2.0;
    if (check->inputs == INPUTS_LARGE || check->inputs == INPUTS_SMALL)
        inputs_scale(check, GATED_DELTA_FORWARD_X, x, check->inputs == INPUTS_LARGE ? 3.0 : 0.1,
                     0.0);
    if (check->call.kind == OP_GATED_DELTA_CACHED)
        value[GATED_DELTA_CACHED_SCALARS][SCALAR_POSITION] = (double)random_below(random, 3);
    else
        inputs_documents(check, value[GATED_DELTA_FORWARD_FIRST], random);
}

/* The states come from the oracle's forward. */
static void inputs_gated_delta_backward(const struct check_case *check, double *const *value,
                                        struct random *random)
{
    struct op_call call = check->call;
    struct ref_tensors t = {.value = {NULL}};
    inputs_delta(check, value, random);
    inputs_rounded(check, GATED_DELTA_BACKWARD_X, value[GATED_DELTA_BACKWARD_X]);
    inputs_rounded(check, GATED_DELTA_BACKWARD_DECAY, value[GATED_DELTA_BACKWARD_DECAY]);
    const int64_t y = op_elements(&call, GATED_DELTA_BACKWARD_DY),
                  states = op_elements(&call, GATED_DELTA_BACKWARD_STATES);
    double *memory = space(2 * y + states);
    call.kind = OP_GATED_DELTA_FORWARD;
    for (int32_t slot = 0; slot < OP_OPERANDS_MAX; slot++)
        t.value[slot] = value[slot];
    t.value[GATED_DELTA_FORWARD_Y] = memory;
    t.term[GATED_DELTA_FORWARD_Y] = memory + y;
    t.term[GATED_DELTA_FORWARD_STATES] = memory + 2 * y;
    ref_gated_delta_forward(&call, &t);
    free(memory);
}

static double delta_shared_by(const struct op_call *call, int32_t slot)
{
    return call->operand[slot].rank == 2 ? judge_row(call, slot) : 1.0;
}

#define X_BENCH(rows)                                           \
    {                                                           \
        0,                                                      \
        {                                                       \
            rows, 3 * BENCH_HEADS *BENCH_SIZE + 2 * BENCH_HEADS \
        }                                                       \
    }

const struct op_test test_gated_delta_forward = {
    .shape = make_gated_delta_forward,
    .bench = bench_delta,
    .bench_dims = {X_BENCH(BENCH_ROWS)},
    .inputs = inputs_delta,
    .ref = ref_gated_delta_forward,
    .shared_by = delta_shared_by,
};

const struct op_test test_gated_delta_backward = {
    .shape = make_gated_delta_backward,
    .bench = bench_delta,
    .bench_dims = {X_BENCH(BENCH_ROWS),
                   {GATED_DELTA_BACKWARD_DY, {BENCH_ROWS, BENCH_HEADS *BENCH_SIZE}},
                   {GATED_DELTA_BACKWARD_STATES,
                    {BENCH_SAMPLES * BENCH_HEADS, BENCH_TIME / CHUNK, BENCH_SIZE, BENCH_SIZE}}},
    .inputs = inputs_gated_delta_backward,
    .ref = ref_gated_delta_backward,
    .shared_by = delta_shared_by,
};

const struct op_test test_gated_delta_cached = {
    .shape = make_gated_delta_cached,
    .bench = bench_delta,
    .bench_dims = {X_BENCH(BENCH_SAMPLES),
                   {GATED_DELTA_CACHED_STATE,
                    {BENCH_SAMPLES * BENCH_HEADS, BENCH_SIZE, BENCH_SIZE}}},
    .inputs = inputs_delta,
    .ref = ref_gated_delta_cached,
    .shared_by = delta_shared_by,
};
