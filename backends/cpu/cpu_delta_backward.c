/* gated_delta_backward: the heads of one key head of one sample at a time, from the last chunk to
 * the first. dS is the gradient of S after the chunk.
 *
 * u, and the squares of decays and products, are recomputed from the chunk's first S.  With P = G
 * q.k, A = beta G k.k below the diagonal, and w the gradient of beta (v - c S'k):
 *   (1 + A)' w = P' dy + G_nj dS'k                       (backward substitution)
 *   dv = beta w,  dbeta = w.rest - (w u')(G k.k),  dP = dy u',  dA = -w u'
 *   dS <- c_n dS + c q dy' - beta c k w'
 * dq and dk follow from these and are summed over the heads of the group.  Each decay factor
 * contributes to the gradient of its exponent.  The gradient of a row's g is the sum of the
 * exponents' gradients from that row on.  Gradients of decays are summed in fp64.
 */
#include "backends/cpu/cpu_delta.h"

struct delta_item {
    const struct delta_shape *shape;
    struct cpu_floats x, dy, dx;
    const float *decay;
    const int32_t *begin;
    const float *states;
    double *ddecay; /* of the sample */
    int64_t sample, key_head;
};

/* dq and dk are the gradients of the group's normalised q and k. of_state and of_gradient are S and
 * dS transposed. */
struct backward_scratch {
    struct delta_scratch s;
    float *dq, *dk, *dy, *w, *ut; /* tiles; ut: u transposed */
    float *dread, *dsolve;        /* squares: dy u', w u' */
    float *state, *of_state, *of_gradient,
        *gradients; /* [padded, padded]; gradients: of the group */
};

/* For one head of a chunk: the gradients of the exponents and of beta. */
struct gate_gradients {
    double sum[DELTA_ROWS], beta[DELTA_ROWS];
};

static int64_t scratch_floats(const struct delta_shape *shape)
{
    return delta_scratch_floats(shape) + 5 * DELTA_ROWS * shape->padded + 2 * DELTA_SQUARE +
           (3 + shape->group) * shape->padded * shape->padded;
}

static struct backward_scratch scratch_cut(float *memory, const struct delta_shape *shape)
{
    struct backward_scratch b;
    const int64_t tile = DELTA_ROWS * shape->padded, square = shape->padded * shape->padded;
    memory = delta_scratch_cut(memory, shape, &b.s);
    b.dq = memory;
    b.dk = memory + tile;
    b.dy = memory + 2 * tile;
    b.w = memory + 3 * tile;
    b.ut = memory + 4 * tile;
    b.dread = memory + 5 * tile;
    b.dsolve = b.dread + DELTA_SQUARE;
    b.state = b.dsolve + DELTA_SQUARE;
    b.of_state = b.state + square;
    b.of_gradient = b.of_state + square;
    b.gradients = b.of_gradient + square;
    return b;
}

static void transpose(float *out, float *in, int64_t rows, int64_t columns)
{
    const struct cpu_rows of = {{in, DTYPE_F32}, 0, columns};
    cpu_tile_pack_transposed(out, rows, &of, rows, columns);
}

static double dot(const float *a, const float *b, int64_t count)
{
    double sum = 0.0;
    CPU_SIMD_SUM(i, count, sum)
        sum += (double)a[i] * (double)b[i];
    return sum;
}

/* Computes w from dy and dS. */
static void gradient_solve(const struct delta_shape *shape, const struct delta_gates *gates,
                           int64_t rows, float *gradient, const struct backward_scratch *b)
{
    const int64_t padded = shape->padded;
    cpu_tile_multiply(delta_tile(b->s.k, padded), delta_tile(gradient, padded),
                      delta_tile(b->w, padded), rows, padded, padded, false);
    for (int64_t i = 0; i < DELTA_ROWS; i++) {
        const float to = i < rows ? gates->to[i] : 0.0f;
        float *w = b->w + i * padded;
        for (int64_t d = 0; d < padded; d++)
            w[d] = i < rows ? w[d] * to : 0.0f;
    }
    cpu_tile_multiply((struct cpu_tile){b->s.read, 1, DELTA_ROWS}, delta_tile(b->dy, padded),
                      delta_tile(b->w, padded), rows, padded, rows, true);
    for (int64_t i = rows - 1; i >= 0; i--) {
        float *w = b->w + i * padded;
        for (int64_t j = i + 1; j < rows; j++) {
            const float weight = b->s.solve[j * DELTA_ROWS + i];
            const float *after = b->w + j * padded;
            CPU_SIMD(d, padded)
                w[d] -= weight * after[d];
        }
    }
    for (int64_t i = rows; i < DELTA_ROWS; i++)
        memset(b->w + i * padded, 0, (size_t)padded * sizeof(float));
}

/* Turns dread and dsolve into the gradients of q.k and k.k, and adds the gradients of decays and
 * beta to *out. */
static void pairs_differentiate(const struct delta_gates *gates, int64_t rows,
                                const struct backward_scratch *b, struct gate_gradients *out)
{
    for (int64_t i = 0; i < DELTA_ROWS; i++) {
        float *dread = b->dread + i * DELTA_ROWS, *dsolve = b->dsolve + i * DELTA_ROWS;
        const float *gain = b->s.gain + i * DELTA_ROWS, *read = b->s.read + i * DELTA_ROWS,
                    *solve = b->s.solve + i * DELTA_ROWS, *kk = b->s.kk + i * DELTA_ROWS;
        for (int64_t j = 0; j < DELTA_ROWS; j++) {
            if (i >= rows || j > i) {
                dread[j] = dsolve[j] = 0.0f;
                continue;
            }
            const float of_solve = j < i ? -dsolve[j] : 0.0f;
            const double share = (double)(dread[j] * read[j]) + (double)(of_solve * solve[j]);
            if (j < i) { /* on the diagonal the exponent is 0 */
                out->sum[i] += share;
                out->sum[j] -= share;
            }
            out->beta[i] += (double)of_solve * (double)(gain[j] * kk[j]);
            dread[j] *= gain[j];
            dsolve[j] = of_solve * gain[j] * gates->beta[i];
        }
    }
}

/* Adds the products of pairs to dq and dk. */
static void pairs_add(const struct delta_shape *shape, int64_t rows,
                      const struct backward_scratch *b)
{
    const int64_t padded = shape->padded;
    const struct cpu_tile k = delta_tile(b->s.k, padded), q = delta_tile(b->s.q, padded),
                          dk = delta_tile(b->dk, padded);
    cpu_tile_multiply(delta_tile(b->dread, DELTA_ROWS), k, delta_tile(b->dq, padded), rows, padded,
                      rows, true);
    cpu_tile_multiply((struct cpu_tile){b->dread, 1, DELTA_ROWS}, q, dk, rows, padded, rows, true);
    cpu_tile_multiply(delta_tile(b->dsolve, DELTA_ROWS), k, dk, rows, padded, rows, true);
    cpu_tile_multiply((struct cpu_tile){b->dsolve, 1, DELTA_ROWS}, k, dk, rows, padded, rows, true);
}

/* Scales each row of `tile` by its sign, factor and beta, and adds it to `out`.  Adds the dot
 * product of the scaled row and the row of `with` to the row's exponent gradient.  Returns the sum
 * of these dot products. */
static double rows_add(const struct delta_shape *shape, int64_t rows, const float *factor,
                       const float *beta, const float *tile, const float *with, float *out,
                       double sign, double *exponents)
{
    double all = 0.0;
    for (int64_t i = 0; i < rows; i++) {
        const int64_t at = i * shape->padded;
        const float scale = (float)sign * factor[i] * (beta != NULL ? beta[i] : 1.0f);
        const double share = (double)scale * dot(tile + at, with + at, shape->padded);
        CPU_SIMD(d, shape->padded)
            out[at + d] += scale * tile[at + d];
        exponents[i] += share;
        all += share;
    }
    return all;
}

/* Adds the gradients that come through S and dS, then turns dS into that of the chunk's beginning.
 */
static void state_differentiate(const struct delta_shape *shape, const struct delta_gates *gates,
                                int64_t rows, float *gradient, const struct backward_scratch *b,
                                struct gate_gradients *out)
{
    const int64_t padded = shape->padded, square = padded * padded;
    float *other = b->s.other;
    double away[DELTA_ROWS] = {0.0};
    transpose(b->of_state, b->state, padded, padded);
    transpose(b->of_gradient, gradient, padded, padded);
    cpu_tile_multiply(delta_tile(b->dy, padded), delta_tile(b->of_state, padded),
                      delta_tile(other, padded), rows, padded, padded, false);
    (void)rows_add(shape, rows, gates->from, NULL, other, b->s.q, b->dq, 1.0, out->sum);
    cpu_tile_multiply(delta_tile(b->w, padded), delta_tile(b->of_state, padded),
                      delta_tile(other, padded), rows, padded, padded, false);
    (void)rows_add(shape, rows, gates->from, gates->beta, other, b->s.k, b->dk, -1.0, out->sum);
    cpu_tile_multiply(delta_tile(b->s.u, padded), delta_tile(b->of_gradient, padded),
                      delta_tile(other, padded), rows, padded, padded, false);
    const double written = rows_add(shape, rows, gates->to, NULL, other, b->s.k, b->dk, 1.0, away);
    for (int64_t i = 0; i < rows; i++)
        out->sum[i] -= away[i];
    out->sum[rows - 1] += written + (double)gates->left * dot(b->state, gradient, square);
    CPU_SIMD(e, square)
        gradient[e] *= gates->left;
    for (int64_t i = 0; i < rows; i++)
        CPU_SIMD(d, padded)
            other[i * padded + d] = gates->from[i] * b->s.q[i * padded + d];
    cpu_tile_multiply((struct cpu_tile){other, 1, padded}, delta_tile(b->dy, padded),
                      delta_tile(gradient, padded), padded, padded, rows, true);
    for (int64_t i = 0; i < rows; i++)
        CPU_SIMD(d, padded)
            other[i * padded + d] = -gates->beta[i] * gates->from[i] * b->s.k[i * padded + d];
    cpu_tile_multiply((struct cpu_tile){other, 1, padded}, delta_tile(b->w, padded),
                      delta_tile(gradient, padded), padded, padded, rows, true);
}

/* Writes dv and the gradients of b and a, and adds the gradients of decay. */
static void gates_differentiate(const struct delta_item *item, const struct delta_gates *gates,
                                int64_t n, int64_t rows, int64_t head,
                                const struct backward_scratch *b, struct gate_gradients *g)
{
    const struct delta_shape *shape = item->shape;
    const int64_t padded = shape->padded, heads = shape->heads;
    const float decay = item->decay[head], offset = item->decay[heads + head];
    double after = 0.0;
    for (int64_t i = rows - 1; i >= 0; i--) {
        float *w = b->w + i * padded, a, before, db, da;
        const int64_t row = (n + i) * shape->row, column = row + shape->row - 2 * heads + head;
        cpu_floats_copy(item->x, column, 1, &before);
        cpu_floats_copy(item->x, column + heads, 1, &a);
        const float z = a + offset, beta = gates->beta[i];
        after += g->sum[i];
        /* The first row of a document reads no S, so its decay has no effect. */
        const double dg = gates->begin[i] == i ? 0.0 : after;
        const double of_z = -exp((double)decay) * dg * (double)gate_of(z, GATE_SIGMOID);
        g->beta[i] += dot(w, b->s.rest + i * padded, padded);
        db = (float)(g->beta[i] * (double)gate_slope(before, GATE_SIGMOID));
        da = (float)of_z;
        item->ddecay[head] += dg * delta_decay(decay, z);
        item->ddecay[heads + head] += of_z;
        cpu_floats_write(item->dx, column, 1, &db);
        cpu_floats_write(item->dx, column + heads, 1, &da);
        CPU_SIMD(d, padded)
            w[d] *= beta;
        cpu_floats_write(item->dx, row + (2 * shape->key_heads + head) * shape->size, shape->size,
                         w);
    }
}

/* Writes the gradient of q or k, given the gradient of its normalised form times `factor`. */
static void normal_differentiate(const struct delta_item *item, int64_t n, int64_t rows,
                                 int64_t column, float factor, const float *gradient, float *tile)
{
    const struct delta_shape *shape = item->shape;
    const int64_t padded = shape->padded, size = shape->size;
    const struct cpu_rows of = {item->x, n * shape->row + column, shape->row};
    cpu_tile_pack(tile, DELTA_ROWS, padded, &of, rows, size, 1.0f);
    for (int64_t i = 0; i < rows; i++) {
        float *x = tile + i * padded;
        const float *dy = gradient + i * padded;
        const double square = dot(x, x, padded), r = 1.0 / sqrt(square + DELTA_EPSILON);
        const float mean = (float)(dot(x, dy, padded) * r * r), scale = factor * (float)r;
        CPU_SIMD(d, size)
            x[d] = scale * (dy[d] - x[d] * mean);
        cpu_floats_write(item->dx, of.first + i * of.stride, size, x);
    }
}

static void head_run(const struct delta_item *item, int64_t chunk, int64_t rows, int64_t h,
                     const struct backward_scratch *b)
{
    const struct delta_shape *shape = item->shape;
    const int64_t padded = shape->padded, size = shape->size, first = chunk * DELTA_ROWS,
                  sample = item->sample * shape->time, n = sample + first,
                  head = item->key_head * shape->group + h;
    const float *from =
        item->states + ((item->sample * shape->heads + head) * shape->chunks + chunk) * size * size;
    float *gradient = b->gradients + h * padded * padded;
    const struct cpu_rows of_dy = {item->dy, (n * shape->heads + head) * size, shape->heads * size};
    struct delta_gates gates;
    struct gate_gradients out = {{0.0}, {0.0}};
    for (int64_t d = 0; d < size; d++)
        memcpy(b->state + d * padded, from + d * size, (size_t)size * sizeof(float));
    delta_gates_make(shape, item->x, item->decay, item->begin, sample, first, rows, head, &gates);
    delta_squares_make(&gates, rows, &b->s);
    delta_update_make(shape, item->x, n, rows, head, &gates, b->state, &b->s);
    cpu_tile_pack(b->dy, DELTA_ROWS, padded, &of_dy, rows, size, 1.0f);
    gradient_solve(shape, &gates, rows, gradient, b);
    transpose(b->ut, b->s.u, DELTA_ROWS, padded);
    cpu_tile_multiply(delta_tile(b->dy, padded), delta_tile(b->ut, DELTA_ROWS),
                      delta_tile(b->dread, DELTA_ROWS), rows, DELTA_ROWS, padded, false);
    cpu_tile_multiply(delta_tile(b->w, padded), delta_tile(b->ut, DELTA_ROWS),
                      delta_tile(b->dsolve, DELTA_ROWS), rows, DELTA_ROWS, padded, false);
    pairs_differentiate(&gates, rows, b, &out);
    pairs_add(shape, rows, b);
    state_differentiate(shape, &gates, rows, gradient, b, &out);
    gates_differentiate(item, &gates, n, rows, head, b, &out);
}

static void item_run(const struct delta_item *item, float *memory)
{
    const struct delta_shape *shape = item->shape;
    const struct backward_scratch b = scratch_cut(memory, shape);
    const int64_t padded = shape->padded, square = padded * padded;
    memset(b.state, 0, (size_t)((3 + shape->group) * square) * sizeof(float));
    for (int64_t chunk = shape->chunks - 1; chunk >= 0; chunk--) {
        const int64_t first = chunk * DELTA_ROWS, rows = min_i64(DELTA_ROWS, shape->time - first),
                      n = item->sample * shape->time + first;
        delta_keys_make(shape, item->x, n, rows, item->key_head, &b.s);
        memset(b.dq, 0, (size_t)(2 * DELTA_ROWS * padded) * sizeof(float)); /* and dk */
        for (int64_t h = 0; h < shape->group; h++)
            head_run(item, chunk, rows, h, &b);
        normal_differentiate(item, n, rows, item->key_head * shape->size,
                             (float)(1.0 / sqrt((double)shape->size)), b.dq, b.s.other);
        normal_differentiate(item, n, rows, (shape->key_heads + item->key_head) * shape->size, 1.0f,
                             b.dk, b.s.other);
    }
}

/* The workspace has the samples' gradients of decay, then decay, then the threads' scratch. */
static size_t delta_backward_workspace_bytes(const struct cpu_backend *cpu,
                                             const struct op_call *call)
{
    const struct delta_shape shape = delta_shape_of(call, GATED_DELTA_BACKWARD_X);
    const size_t sums = (size_t)(shape.samples * 2 * shape.heads) * sizeof(double);
    return sums + (size_t)(cpu->threads * scratch_floats(&shape) + 2 * shape.heads) * sizeof(float);
}

static void gated_delta_backward_run(const struct cpu_backend *cpu, const struct op_call *call)
{
    const struct delta_shape shape = delta_shape_of(call, GATED_DELTA_BACKWARD_X);
    const struct cpu_floats decay = cpu_floats_of(cpu, call, GATED_DELTA_BACKWARD_DECAY);
    const int64_t sums = 2 * shape.heads;
    double *ddecay = cpu_workspace(cpu, call, delta_backward_workspace_bytes(cpu, call));
    float *scratch = (float *)(void *)(ddecay + shape.samples * sums);
    const struct delta_item item = {
        .shape = &shape,
        .x = cpu_floats_of(cpu, call, GATED_DELTA_BACKWARD_X),
        .dy = cpu_floats_of(cpu, call, GATED_DELTA_BACKWARD_DY),
        .dx = cpu_floats_of(cpu, call, GATED_DELTA_BACKWARD_DX),
        .decay = cpu_floats_read(decay, 0, sums, scratch),
        .begin = cpu_operand(cpu, call, GATED_DELTA_BACKWARD_FIRST),
        .states = cpu_operand(cpu, call, GATED_DELTA_BACKWARD_STATES),
    };
    const int64_t work = shape.samples * shape.time * shape.heads * shape.size * shape.size;
    (void)work; /* used only with OpenMP */
    memset(ddecay, 0, (size_t)(shape.samples * sums) * sizeof *ddecay);
    CPU_OMP(omp parallel for schedule(dynamic, 1) num_threads(cpu_threads_for(cpu, work)))
    for (int64_t index = 0; index < shape.samples * shape.key_heads; index++) {
        struct delta_item of_index = item;
        of_index.sample = index / shape.key_heads;
        of_index.key_head = index % shape.key_heads;
        of_index.ddecay = ddecay + of_index.sample * sums;
        item_run(&of_index, scratch + sums + cpu_thread_index() * scratch_floats(&shape));
    }
    cpu_parts_add(cpu, call, GATED_DELTA_BACKWARD_DDECAY, ddecay, sums, shape.samples);
}

const struct cpu_op CPU_NAME(cpu_gated_delta_backward) = {
    .workspace_bytes = delta_backward_workspace_bytes, .run = gated_delta_backward_run};
