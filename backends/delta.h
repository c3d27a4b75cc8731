/* gated_delta for a group of work-items: what the kernels of cards share, in the part of C that
 * OpenCL and CUDA have in common.  Formulas: src/ops/delta.c.
 *
 * A group takes a head of a sample, in the backward the heads of a key head, from chunk to chunk.
 * All that it computes lies in its part of the workspace; a work-item takes whole columns of the
 * values where rows depend on each other, else single elements.  Each sum has one order, and
 * nothing depends on the number of work-items.
 *
 * The includer includes gelu.h and defines DELTA_GLOBAL, the address space of pointers;
 * DELTA_FUNCTION; DELTA_ITEM and DELTA_ITEMS, a work-item's number and how many there are;
 * DELTA_SYNC(), which also orders accesses to memory; struct delta_tensor with delta_load(tensor,
 * i) and delta_store(tensor, i, value), whose memory may be absent; delta_exp(), delta_log() and
 * delta_sqrt(); host code defines nothing and sees the sizes.
 */
#ifndef GPT_TRAIN_BACKENDS_DELTA_H
#define GPT_TRAIN_BACKENDS_DELTA_H

#define DELTA_CHUNK 64 /* OP_DELTA_CHUNK */
#define DELTA_SQUARE (DELTA_CHUNK * DELTA_CHUNK)

/* The workspace of a group, in floats. */
#define DELTA_FORWARD_FLOATS(size) \
    (3 * DELTA_CHUNK * (size) + 2 * DELTA_SQUARE + 8 * DELTA_CHUNK + (size) * (size))
#define DELTA_BACKWARD_FLOATS(size, group)                                     \
    (10 * DELTA_CHUNK * (size) + 5 * DELTA_SQUARE + 8 * DELTA_CHUNK + (size) + \
     (group) * (size) * (size) + 2 * (group))

#ifdef DELTA_GLOBAL
#define DELTA_EPSILON 1e-6f

/* The operands; `read` is y or dy.  first: present if has_first. */
struct delta_net {
    struct delta_tensor x, decay, read, dx;
    DELTA_GLOBAL const int *first;
    DELTA_GLOBAL float *states, *state; /* state: of gated_delta_cached; else absent */
    long time, chunks;
    int heads, key_heads, size, row;
    int has_first, is_cached, continues;
};

/* A group's workspace: tiles [64, size], squares [64, 64], and numbers of a chunk's rows.  `shared`
 * is what S and its gradients need. */
struct delta_work {
    DELTA_GLOBAL float *q, *k, *u, *rest, *dy, *w, *dq, *dk, *paid, *written; /* tiles */
    DELTA_GLOBAL float *read, *pull, *gain, *dread, *dpull;                   /* squares */
    DELTA_GLOBAL float *sum, *beta, *from, *to, *begin, *dsum, *dbeta, *g;    /* of rows */
    DELTA_GLOBAL float *columns;                                              /* [size] */
    DELTA_GLOBAL float *state; /* [size, size], or of each head of the group */
    DELTA_GLOBAL float *decay; /* [group, 2]: gradients */
};

DELTA_FUNCTION struct delta_work delta_work_cut(DELTA_GLOBAL float *memory, int size, int group,
                                                int is_backward)
{
    struct delta_work work;
    const int tile = DELTA_CHUNK * size;
    work.q = memory;
    work.k = work.q + tile;
    work.u = work.k + tile;
    work.rest = work.u + tile;
    work.dy = work.rest + tile;
    work.w = work.dy + tile;
    work.dq = work.w + tile;
    work.dk = work.dq + tile;
    work.paid = work.dk + tile;
    work.written = work.paid + tile;
    work.read = is_backward ? work.written + tile : work.rest;
    work.pull = work.read + DELTA_SQUARE;
    work.gain = work.pull + DELTA_SQUARE;
    work.dread = work.gain + DELTA_SQUARE;
    work.dpull = work.dread + DELTA_SQUARE;
    work.sum = is_backward ? work.dpull + DELTA_SQUARE : work.gain;
    work.beta = work.sum + DELTA_CHUNK;
    work.from = work.beta + DELTA_CHUNK;
    work.to = work.from + DELTA_CHUNK;
    work.begin = work.to + DELTA_CHUNK;
    work.dsum = work.begin + DELTA_CHUNK;
    work.dbeta = work.dsum + DELTA_CHUNK;
    work.g = work.dbeta + DELTA_CHUNK;
    work.columns = work.g + DELTA_CHUNK;
    work.state = is_backward ? work.columns + size : work.columns;
    work.decay = work.state + group * size * size;
    return work;
}

/* The rows of a chunk: row 0 of the sample is row `sample` of x. */
struct delta_rows {
    long sample, first;
    int rows;
};

DELTA_FUNCTION struct delta_rows delta_rows_of(const struct delta_net *net, long sample, long chunk)
{
    struct delta_rows rows;
    const long left = net->time - chunk * DELTA_CHUNK;
    rows.sample = sample * net->time;
    rows.first = chunk * DELTA_CHUNK;
    rows.rows = left < DELTA_CHUNK ? (int)left : DELTA_CHUNK;
    return rows;
}

DELTA_FUNCTION long delta_at(const struct delta_net *net, const struct delta_rows *rows, int i)
{
    return (rows->sample + rows->first + i) * net->row;
}

/* Returns where x has q, or k, of a key head in row i. */
DELTA_FUNCTION long delta_key_at(const struct delta_net *net, const struct delta_rows *rows, int i,
                                 int key_head, int is_key)
{
    return delta_at(net, rows, i) +
           (long)(is_key ? net->key_heads + key_head : key_head) * net->size;
}

/* Packs q and k of a key head, normalised. */
DELTA_FUNCTION void delta_keys_make(const struct delta_net *net, const struct delta_rows *rows,
                                    int key_head, const struct delta_work *work)
{
    const int size = net->size;
    for (int e = DELTA_ITEM; e < 2 * rows->rows; e += DELTA_ITEMS) {
        const int i = e >> 1, is_key = e & 1;
        const long at = delta_key_at(net, rows, i, key_head, is_key);
        DELTA_GLOBAL float *out = (is_key ? work->k : work->q) + i * size;
        float square = 0.0f;
        for (int d = 0; d < size; d++) {
            const float value = delta_load(&net->x, at + d);
            out[d] = value;
            square += value * value;
        }
        const float r = 1.0f / delta_sqrt(square + DELTA_EPSILON),
                    factor = is_key ? r : r / delta_sqrt((float)size);
        for (int d = 0; d < size; d++)
            out[d] *= factor;
    }
    DELTA_SYNC();
}

/* log(1 + e^z). */
DELTA_FUNCTION float delta_softplus(float z)
{
    const float e = delta_exp(z > 0.0f ? -z : z);
    /* log(1 + e) loses what 1 + e rounds. */
    const float one = 1.0f + e, more = one == 1.0f ? e : delta_log(one) * (e / (one - 1.0f));
    return z > 0.0f ? z + more : more;
}

DELTA_FUNCTION void delta_gates_make(const struct delta_net *net, const struct delta_rows *rows,
                                     int head, const struct delta_work *work)
{
    const int count = rows->rows, heads = net->heads;
    const float decay = delta_exp(delta_load(&net->decay, head)),
                offset = delta_load(&net->decay, heads + head);
    for (int i = DELTA_ITEM; i < count; i += DELTA_ITEMS) {
        const long at = delta_at(net, rows, i) + net->row - 2 * heads + head;
        const long begin = net->has_first ? net->first[rows->sample + rows->first + i] : 0;
        work->beta[i] = gate_of(delta_load(&net->x, at), GATE_SIGMOID);
        work->g[i] = -decay * delta_softplus(delta_load(&net->x, at + heads) + offset);
        work->begin[i] = (float)(begin - rows->first);
    }
    DELTA_SYNC();
    for (int i = DELTA_ITEM; i < count; i += DELTA_ITEMS) {
        float sum = 0.0f, after = 0.0f;
        for (int j = 0; j <= i; j++)
            sum += work->g[j];
        for (int j = i + 1; j < count; j++)
            after += work->g[j];
        work->sum[i] = sum;
        work->from[i] = !net->has_first || work->begin[i] < 0.0f ? delta_exp(sum) : 0.0f;
        work->to[i] = (float)i >= work->begin[count - 1] ? delta_exp(after) : 0.0f;
    }
    DELTA_SYNC();
}

/* read = G q.k and pull = G k.k below the diagonal; the backward keeps G. */
DELTA_FUNCTION void delta_squares_make(const struct delta_net *net, const struct delta_rows *rows,
                                       const struct delta_work *work, int is_backward)
{
    for (int e = DELTA_ITEM; e < rows->rows * DELTA_CHUNK; e += DELTA_ITEMS) {
        const int i = e / DELTA_CHUNK, j = e % DELTA_CHUNK;
        float gain = 0.0f, qk = 0.0f, kk = 0.0f;
        if (j <= i && (float)j >= work->begin[i]) {
            gain = delta_exp(work->sum[i] - work->sum[j]);
            for (int d = 0; d < net->size; d++) {
                const float key = work->k[j * net->size + d];
                qk += work->q[i * net->size + d] * key;
                kk += work->k[i * net->size + d] * key;
            }
        }
        work->read[e] = gain * qk;
        work->pull[e] = j < i ? gain * kk : 0.0f;
        if (is_backward)
            work->gain[e] = gain;
    }
    DELTA_SYNC();
}

DELTA_FUNCTION float delta_column_dot(DELTA_GLOBAL const float *row,
                                      DELTA_GLOBAL const float *state, int size, int c)
{
    float sum = 0.0f;
    for (int d = 0; d < size; d++)
        sum += row[d] * state[d * size + c];
    return sum;
}

/* u of column c of the values; the backward keeps v - c S'k. */
DELTA_FUNCTION void delta_column_update(const struct delta_net *net, const struct delta_rows *rows,
                                        int head, DELTA_GLOBAL const float *state, int c,
                                        const struct delta_work *work, int is_backward)
{
    const int size = net->size;
    for (int i = 0; i < rows->rows; i++) {
        const float v = delta_load(&net->x, delta_at(net, rows, i) +
                                                (long)(2 * net->key_heads + head) * size + c);
        const float rest = v - work->from[i] * delta_column_dot(work->k + i * size, state, size, c);
        float pulled = 0.0f;
        for (int j = 0; j < i; j++)
            pulled += work->pull[i * DELTA_CHUNK + j] * work->u[j * size + c];
        work->u[i * size + c] = work->beta[i] * (rest - pulled);
        if (is_backward)
            work->rest[i * size + c] = rest;
    }
}

/* y of column c, and S behind the chunk. */
DELTA_FUNCTION void delta_column_finish(const struct delta_net *net, const struct delta_rows *rows,
                                        int head, DELTA_GLOBAL float *state, int c,
                                        const struct delta_work *work)
{
    const int size = net->size, count = rows->rows;
    for (int i = 0; i < count; i++) {
        float y = work->from[i] * delta_column_dot(work->q + i * size, state, size, c);
        for (int j = 0; j <= i; j++)
            y += work->read[i * DELTA_CHUNK + j] * work->u[j * size + c];
        delta_store(&net->read,
                    ((rows->sample + rows->first + i) * net->heads + head) * (long)size + c, y);
    }
    for (int d = 0; d < size; d++) {
        float sum = work->from[count - 1] * state[d * size + c];
        for (int j = 0; j < count; j++)
            sum += work->to[j] * work->k[j * size + d] * work->u[j * size + c];
        state[d * size + c] = sum;
    }
}

/* A head of a sample: index is sample * heads + head. */
DELTA_FUNCTION void delta_forward(const struct delta_net *net, long index,
                                  DELTA_GLOBAL float *memory)
{
    const int size = net->size, head = (int)(index % net->heads);
    const struct delta_work work = delta_work_cut(memory, size, 1, 0);
    for (int c = DELTA_ITEM; c < size; c += DELTA_ITEMS)
        for (int d = 0; d < size; d++)
            work.state[d * size + c] =
                net->continues ? net->state[(index * size + d) * size + c] : 0.0f;
    for (long chunk = 0; chunk < net->chunks; chunk++) {
        const struct delta_rows rows = delta_rows_of(net, index / net->heads, chunk);
        DELTA_SYNC();
        delta_keys_make(net, &rows, head / (net->heads / net->key_heads), &work);
        delta_gates_make(net, &rows, head, &work);
        delta_squares_make(net, &rows, &work, 0);
        for (int c = DELTA_ITEM; c < size; c += DELTA_ITEMS) {
            for (int d = 0; d < size && !net->is_cached; d++)
                net->states[((index * net->chunks + chunk) * size + d) * size + c] =
                    work.state[d * size + c];
            delta_column_update(net, &rows, head, work.state, c, &work, 0);
            delta_column_finish(net, &rows, head, work.state, c, &work);
        }
    }
    for (int c = DELTA_ITEM; c < size && net->is_cached; c += DELTA_ITEMS)
        for (int d = 0; d < size; d++)
            net->state[(index * size + d) * size + c] = work.state[d * size + c];
}

/* ---- the backward ---- */

/* w of column c, what the exponents get from it, and dv. */
DELTA_FUNCTION void delta_column_solve(const struct delta_net *net, const struct delta_rows *rows,
                                       int head, DELTA_GLOBAL const float *state,
                                       DELTA_GLOBAL const float *gradient, int c,
                                       const struct delta_work *work)
{
    const int size = net->size, count = rows->rows;
    float left = 0.0f;
    for (int d = 0; d < size; d++)
        left += state[d * size + c] * gradient[d * size + c];
    work->columns[c] = left;
    for (int i = count - 1; i >= 0; i--) {
        const int at = i * size + c;
        const float written = work->to[i] * delta_column_dot(work->k + i * size, gradient, size, c);
        float w = written;
        for (int j = i; j < count; j++)
            w += work->read[j * DELTA_CHUNK + i] * work->dy[j * size + c];
        for (int j = i + 1; j < count; j++)
            w -= work->beta[j] * work->pull[j * DELTA_CHUNK + i] * work->w[j * size + c];
        work->w[at] = w;
        work->written[at] = written * work->u[at];
        work->paid[at] = work->from[i] *
                         (work->dy[at] * delta_column_dot(work->q + i * size, state, size, c) -
                          work->beta[i] * w * delta_column_dot(work->k + i * size, state, size, c));
        delta_store(&net->dx, delta_at(net, rows, i) + (long)(2 * net->key_heads + head) * size + c,
                    work->beta[i] * w);
    }
}

/* dread = dy u' and dpull = -w u', of the pairs that see each other. */
DELTA_FUNCTION void delta_pairs_make(const struct delta_net *net, const struct delta_rows *rows,
                                     const struct delta_work *work)
{
    for (int e = DELTA_ITEM; e < rows->rows * DELTA_CHUNK; e += DELTA_ITEMS) {
        const int i = e / DELTA_CHUNK, j = e % DELTA_CHUNK, size = net->size;
        float dread = 0.0f, dpull = 0.0f;
        for (int c = 0; c < size && j <= i; c++) {
            dread += work->dy[i * size + c] * work->u[j * size + c];
            dpull -= work->w[i * size + c] * work->u[j * size + c];
        }
        work->dread[e] = dread;
        work->dpull[e] = j < i ? dpull : 0.0f;
    }
    DELTA_SYNC();
}

/* The gradients of a row's exponent and beta. */
DELTA_FUNCTION void delta_row_sums(const struct delta_net *net, const struct delta_rows *rows,
                                   int i, const struct delta_work *work)
{
    const int size = net->size, count = rows->rows;
    float sum = 0.0f, beta = 0.0f;
    for (int c = 0; c < size; c++) {
        sum += work->paid[i * size + c] - work->written[i * size + c];
        beta += work->w[i * size + c] * work->rest[i * size + c];
    }
    for (int j = 0; j < i; j++) {
        const int e = i * DELTA_CHUNK + j;
        sum += work->dread[e] * work->read[e] + work->dpull[e] * work->beta[i] * work->pull[e];
        beta += work->dpull[e] * work->pull[e];
    }
    for (int j = i + 1; j < count; j++) {
        const int e = j * DELTA_CHUNK + i;
        sum -= work->dread[e] * work->read[e] + work->dpull[e] * work->beta[j] * work->pull[e];
    }
    if (i == count - 1) {
        float left = 0.0f;
        for (int c = 0; c < size; c++)
            left += work->columns[c];
        sum += work->from[i] * left;
        for (int e = 0; e < count * size; e++)
            sum += work->written[e];
    }
    work->dsum[i] = sum;
    work->dbeta[i] = beta;
}

/* dq and dk of element d of row i. */
DELTA_FUNCTION void delta_keys_add(const struct delta_net *net, const struct delta_rows *rows,
                                   int i, int d, DELTA_GLOBAL const float *state,
                                   DELTA_GLOBAL const float *gradient,
                                   const struct delta_work *work)
{
    const int size = net->size;
    float read = 0.0f, paid = 0.0f, written = 0.0f, dq, dk;
    for (int c = 0; c < size; c++) {
        read += work->dy[i * size + c] * state[d * size + c];
        paid += work->w[i * size + c] * state[d * size + c];
        written += work->u[i * size + c] * gradient[d * size + c];
    }
    dq = work->from[i] * read;
    dk = work->to[i] * written - work->beta[i] * work->from[i] * paid;
    for (int j = 0; j <= i; j++) {
        const int e = i * DELTA_CHUNK + j;
        dq += work->dread[e] * work->gain[e] * work->k[j * size + d];
        dk += work->dpull[e] * work->gain[e] * work->beta[i] * work->k[j * size + d];
    }
    for (int j = i; j < rows->rows; j++) {
        const int e = j * DELTA_CHUNK + i;
        dk += work->gain[e] * (work->dread[e] * work->q[j * size + d] +
                               work->dpull[e] * work->beta[j] * work->k[j * size + d]);
    }
    work->dq[i * size + d] += dq;
    work->dk[i * size + d] += dk;
}

/* The gradient of S before the chunk, in column c. */
DELTA_FUNCTION void delta_column_back(const struct delta_net *net, const struct delta_rows *rows,
                                      DELTA_GLOBAL float *gradient, int c,
                                      const struct delta_work *work)
{
    const int size = net->size, count = rows->rows;
    for (int d = 0; d < size; d++) {
        float sum = work->from[count - 1] * gradient[d * size + c];
        for (int i = 0; i < count; i++)
            sum += work->from[i] * (work->q[i * size + d] * work->dy[i * size + c] -
                                    work->beta[i] * work->k[i * size + d] * work->w[i * size + c]);
        gradient[d * size + c] = sum;
    }
}

/* The gradients of b and a of the rows, and of the head's decay. */
DELTA_FUNCTION void delta_gates_back(const struct delta_net *net, const struct delta_rows *rows,
                                     int head, int in_group, const struct delta_work *work)
{
    const int count = rows->rows, heads = net->heads;
    const float decay = delta_exp(delta_load(&net->decay, head)),
                offset = delta_load(&net->decay, heads + head);
    for (int i = DELTA_ITEM; i < count; i += DELTA_ITEMS) {
        const long at = delta_at(net, rows, i) + net->row - 2 * heads + head;
        float dg = 0.0f;
        for (int j = i; j < count; j++)
            dg += work->dsum[j];
        dg = net->has_first && work->begin[i] == (float)i ? 0.0f : dg;
        const float dz =
            -decay * dg * gate_of(delta_load(&net->x, at + heads) + offset, GATE_SIGMOID);
        delta_store(&net->dx, at,
                    work->dbeta[i] * gate_slope(delta_load(&net->x, at), GATE_SIGMOID));
        delta_store(&net->dx, at + heads, dz);
        work->g[i] *= dg;
        work->sum[i] = dz;
    }
    DELTA_SYNC();
    if (DELTA_ITEM == 0) {
        float of_decay = 0.0f, of_offset = 0.0f;
        for (int i = 0; i < count; i++) {
            of_decay += work->g[i];
            of_offset += work->sum[i];
        }
        work->decay[2 * in_group] += of_decay;
        work->decay[2 * in_group + 1] += of_offset;
    }
}

/* A head of the group: one chunk. */
DELTA_FUNCTION void delta_head_back(const struct delta_net *net, const struct delta_rows *rows,
                                    long sample, long chunk, int head, int in_group,
                                    const struct delta_work *work)
{
    const int size = net->size, count = rows->rows;
    DELTA_GLOBAL const float *state =
        net->states + ((sample * net->heads + head) * net->chunks + chunk) * size * size;
    DELTA_GLOBAL float *gradient = work->state + in_group * size * size;
    delta_gates_make(net, rows, head, work);
    delta_squares_make(net, rows, work, 1);
    for (int c = DELTA_ITEM; c < size; c += DELTA_ITEMS) {
        for (int i = 0; i < count; i++)
            work->dy[i * size + c] =
                delta_load(&net->read,
                           ((rows->sample + rows->first + i) * net->heads + head) * (long)size + c);
        delta_column_update(net, rows, head, state, c, work, 1);
        delta_column_solve(net, rows, head, state, gradient, c, work);
    }
    DELTA_SYNC();
    delta_pairs_make(net, rows, work);
    for (int i = DELTA_ITEM; i < count; i += DELTA_ITEMS)
        delta_row_sums(net, rows, i, work);
    for (int e = DELTA_ITEM; e < count * size; e += DELTA_ITEMS)
        delta_keys_add(net, rows, e / size, e % size, state, gradient, work);
    DELTA_SYNC();
    for (int c = DELTA_ITEM; c < size; c += DELTA_ITEMS)
        delta_column_back(net, rows, gradient, c, work);
    delta_gates_back(net, rows, head, in_group, work);
    DELTA_SYNC();
}

/* dx of q and k, from the gradients of their normalised forms. */
DELTA_FUNCTION void delta_normal_back(const struct delta_net *net, const struct delta_rows *rows,
                                      int key_head, const struct delta_work *work)
{
    const int size = net->size;
    for (int e = DELTA_ITEM; e < 2 * rows->rows; e += DELTA_ITEMS) {
        const int i = e >> 1, is_key = e & 1;
        const long at = delta_key_at(net, rows, i, key_head, is_key);
        DELTA_GLOBAL const float *dy = (is_key ? work->dk : work->dq) + i * size;
        float square = 0.0f, product = 0.0f;
        for (int d = 0; d < size; d++) {
            const float value = delta_load(&net->x, at + d);
            square += value * value;
            product += value * dy[d];
        }
        const float r = 1.0f / delta_sqrt(square + DELTA_EPSILON), mean = product * r * r,
                    factor = is_key ? r : r / delta_sqrt((float)size);
        for (int d = 0; d < size; d++)
            delta_store(&net->dx, at + d, factor * (dy[d] - delta_load(&net->x, at + d) * mean));
    }
    DELTA_SYNC();
}

/* A key head of a sample: index is sample * key_heads + key head.  decay[2 heads] of the sample are
 * the gradients of decay. */
DELTA_FUNCTION void delta_backward(const struct delta_net *net, long index,
                                   DELTA_GLOBAL float *memory, DELTA_GLOBAL float *decay)
{
    const int size = net->size, group = net->heads / net->key_heads,
              key_head = (int)(index % net->key_heads);
    const long sample = index / net->key_heads;
    const struct delta_work work = delta_work_cut(memory, size, group, 1);
    for (int e = DELTA_ITEM; e < group * size * size + 2 * group; e += DELTA_ITEMS)
        work.state[e] = 0.0f; /* and decay, which follows */
    for (long chunk = net->chunks - 1; chunk >= 0; chunk--) {
        const struct delta_rows rows = delta_rows_of(net, sample, chunk);
        for (int e = DELTA_ITEM; e < 2 * DELTA_CHUNK * size; e += DELTA_ITEMS)
            work.dq[e] = 0.0f; /* and dk */
        DELTA_SYNC();
        delta_keys_make(net, &rows, key_head, &work);
        for (int h = 0; h < group; h++)
            delta_head_back(net, &rows, sample, chunk, key_head * group + h, h, &work);
        delta_normal_back(net, &rows, key_head, &work);
    }
    for (int h = DELTA_ITEM; h < group; h += DELTA_ITEMS) {
        decay[key_head * group + h] = work.decay[2 * h];
        decay[net->heads + key_head * group + h] = work.decay[2 * h + 1];
    }
}

#endif
#endif
