/* Shared by the forward and backward passes of gated_delta: tiles of a chunk's rows, and the
 * products of its pairs of rows.
 *
 * A chunk has up to OP_DELTA_CHUNK rows.  Its tiles are [64, padded], its squares [64, 64]; rows
 * beyond the chunk and columns beyond a head are zero.  Decays are summed in fp64.
 */
#ifndef GPT_TRAIN_CPU_CPU_DELTA_H
#define GPT_TRAIN_CPU_CPU_DELTA_H

#include <math.h>

#include "backends/cpu/cpu_tile.h"

#define DELTA_ROWS OP_DELTA_CHUNK
#define DELTA_SQUARE (DELTA_ROWS * DELTA_ROWS)
#define DELTA_EPSILON 1e-6 /* of the norms of q and k */

struct delta_shape {
    int64_t samples, time, heads, key_heads, group; /* group: heads / key_heads */
    int64_t size, padded, row; /* columns of a head; the same, padded; columns of x */
    int64_t chunks;
};

/* The gates of one head of a chunk.  Each array has one element per row. */
struct delta_gates {
    double sum[DELTA_ROWS];    /* the sum of g over the rows up to this one */
    float beta[DELTA_ROWS];    /* s(b) */
    float from[DELTA_ROWS];    /* c: the factor of the chunk's first S at this row */
    float to[DELTA_ROWS];      /* G_nj: the factor of this row's update at the last row */
    float left;                /* c of the last row */
    int64_t begin[DELTA_ROWS]; /* the first row of its document, counted from the chunk's first */
};

struct delta_scratch {
    float *q, *k, *v;           /* tiles; q and k normalised */
    float *kt;                  /* k transposed [padded, 64] */
    float *rest, *u, *other;    /* tiles; rest: v - c S'k */
    float *qk, *kk;             /* squares of products */
    float *read, *solve, *gain; /* squares: G q.k; G beta k.k below the diagonal; G */
};

static inline struct delta_shape delta_shape_of(const struct op_call *call, int32_t x)
{
    const struct op_attrs *attrs = &call->attrs;
    struct delta_shape shape = {.samples = op_rows(call, x) / attrs->time,
                                .time = attrs->time,
                                .heads = attrs->heads,
                                .key_heads = attrs->kv_heads,
                                .group = attrs->heads / attrs->kv_heads,
                                .size = op_delta_size(call, x),
                                .row = op_columns(call, x),
                                .chunks = op_delta_chunks(call)};
    shape.padded = (int64_t)size_round_up((size_t)shape.size, CPU_TILE_COLUMNS);
    return shape;
}

#define DELTA_TILES 7
#define DELTA_SQUARES 5
static inline int64_t delta_scratch_floats(const struct delta_shape *shape)
{
    return DELTA_TILES * DELTA_ROWS * shape->padded + DELTA_SQUARES * DELTA_SQUARE;
}

/* Divides memory among the members of *out, and returns the address after them. */
static inline float *delta_scratch_cut(float *memory, const struct delta_shape *shape,
                                       struct delta_scratch *out)
{
    float **const tiles[DELTA_TILES] = {&out->q,    &out->k, &out->v,    &out->kt,
                                        &out->rest, &out->u, &out->other};
    float **const squares[DELTA_SQUARES] = {&out->qk, &out->kk, &out->read, &out->solve,
                                            &out->gain};
    for (int i = 0; i < DELTA_TILES; i++, memory += DELTA_ROWS * shape->padded)
        *tiles[i] = memory;
    for (int i = 0; i < DELTA_SQUARES; i++, memory += DELTA_SQUARE)
        *squares[i] = memory;
    return memory;
}

/* Returns g of a row: -e^A log(1 + e^z), z = a + d. */
static inline double delta_decay(float decay, float z)
{
    return -exp((double)decay) *
           (z > 0.0f ? (double)z + log1p(exp(-(double)z)) : log1p(exp((double)z)));
}

/* Fills the gates of rows [first, first + rows) of head `head`; row 0 of the sample is row n of x.
 */
static inline void delta_gates_make(const struct delta_shape *shape, struct cpu_floats x,
                                    const float *decay, const int32_t *begin, int64_t n,
                                    int64_t first, int64_t rows, int64_t head,
                                    struct delta_gates *out)
{
    const int64_t column = shape->row - 2 * shape->heads + head;
    double sum = 0.0;
    for (int64_t i = 0; i < rows; i++) {
        float b, a;
        const int64_t at = (n + first + i) * shape->row + column;
        cpu_floats_copy(x, at, 1, &b);
        cpu_floats_copy(x, at + shape->heads, 1, &a);
        sum += delta_decay(decay[head], a + decay[shape->heads + head]);
        out->sum[i] = sum;
        out->beta[i] = gate_of(b, GATE_SIGMOID);
        out->begin[i] = begin != NULL ? begin[n + first + i] - first : -first;
        out->from[i] = out->begin[i] < 0 || (begin == NULL) ? (float)exp(sum) : 0.0f;
    }
    for (int64_t i = 0; i < rows; i++)
        out->to[i] = i >= out->begin[rows - 1] ? (float)exp(sum - out->sum[i]) : 0.0f;
    out->left = out->from[rows - 1];
}

/* Packs a head of q or k, normalised and multiplied by `factor`. */
static inline void delta_pack_normal(float *out, const struct delta_shape *shape,
                                     struct cpu_rows rows, int64_t count, float factor)
{
    cpu_tile_pack(out, DELTA_ROWS, shape->padded, &rows, count, shape->size, 1.0f);
    for (int64_t i = 0; i < count; i++) {
        float *row = out + i * shape->padded;
        double square = 0.0;
        CPU_SIMD_SUM(d, shape->size, square)
            square += (double)row[d] * (double)row[d];
        const float r = (float)(1.0 / sqrt(square + DELTA_EPSILON)) * factor;
        CPU_SIMD(d, shape->size)
            row[d] *= r;
    }
}

static inline struct cpu_tile delta_tile(float *at, int64_t row)
{
    return (struct cpu_tile){at, row, 1};
}

/* Packs q and k of key head `head` of the rows from n on, and computes the products of their pairs.
 */
static inline void delta_keys_make(const struct delta_shape *shape, struct cpu_floats x, int64_t n,
                                   int64_t rows, int64_t head, const struct delta_scratch *s)
{
    const int64_t size = shape->size, padded = shape->padded, q = n * shape->row + head * size;
    const struct cpu_rows of_q = {x, q, shape->row},
                          of_k = {x, q + shape->key_heads * size, shape->row};
    delta_pack_normal(s->q, shape, of_q, rows, (float)(1.0 / sqrt((double)size)));
    delta_pack_normal(s->k, shape, of_k, rows, 1.0f);
    const struct cpu_rows packed = {{s->k, DTYPE_F32}, 0, padded};
    cpu_tile_pack_transposed(s->kt, DELTA_ROWS, &packed, DELTA_ROWS, padded);
    cpu_tile_multiply(delta_tile(s->q, padded), delta_tile(s->kt, DELTA_ROWS),
                      delta_tile(s->qk, DELTA_ROWS), rows, DELTA_ROWS, padded, false);
    cpu_tile_multiply(delta_tile(s->k, padded), delta_tile(s->kt, DELTA_ROWS),
                      delta_tile(s->kk, DELTA_ROWS), rows, DELTA_ROWS, padded, false);
}

/* Computes the squares of a head from the products. */
static inline void delta_squares_make(const struct delta_gates *gates, int64_t rows,
                                      const struct delta_scratch *s)
{
    for (int64_t i = 0; i < DELTA_ROWS; i++) {
        float *gain = s->gain + i * DELTA_ROWS, *read = s->read + i * DELTA_ROWS,
              *solve = s->solve + i * DELTA_ROWS;
        const float *qk = s->qk + i * DELTA_ROWS, *kk = s->kk + i * DELTA_ROWS;
        const int64_t first = i < rows ? max_i64(gates->begin[i], 0) : DELTA_ROWS;
        for (int64_t j = 0; j < DELTA_ROWS; j++)
            gain[j] = read[j] = solve[j] = 0.0f;
        for (int64_t j = first; j <= i && i < rows; j++)
            gain[j] = (float)(gates->sum[i] - gates->sum[j]);
        for (int64_t j = first; j <= i && i < rows; j++) {
            gain[j] = cpu_exp(gain[j]);
            read[j] = gain[j] * qk[j];
            solve[j] = j < i ? gain[j] * gates->beta[i] * kk[j] : 0.0f;
        }
    }
}

/* Packs v of head `head`, and computes u and `rest` of the rows from S [padded, padded]. */
static inline void delta_update_make(const struct delta_shape *shape, struct cpu_floats x,
                                     int64_t n, int64_t rows, int64_t head,
                                     const struct delta_gates *gates, float *state,
                                     const struct delta_scratch *s)
{
    const int64_t padded = shape->padded;
    const struct cpu_rows of_v = {x, n * shape->row + (2 * shape->key_heads + head) * shape->size,
                                  shape->row};
    cpu_tile_pack(s->v, DELTA_ROWS, padded, &of_v, rows, shape->size, 1.0f);
    cpu_tile_multiply(delta_tile(s->k, padded), delta_tile(state, padded),
                      delta_tile(s->rest, padded), rows, padded, padded, false);
    for (int64_t i = 0; i < DELTA_ROWS; i++) {
        float *rest = s->rest + i * padded, *u = s->u + i * padded;
        const float *v = s->v + i * padded, *weight = s->solve + i * DELTA_ROWS;
        const float beta = i < rows ? gates->beta[i] : 0.0f,
                    from = i < rows ? gates->from[i] : 0.0f;
        for (int64_t d = 0; d < padded && i >= rows; d++)
            rest[d] = 0.0f;
        CPU_SIMD(d, padded) {
            rest[d] = v[d] - from * rest[d];
            u[d] = beta * rest[d];
        }
        for (int64_t j = 0; j < i && i < rows; j++) {
            const float *before = s->u + j * padded;
            CPU_SIMD(d, padded)
                u[d] -= weight[j] * before[d];
        }
    }
}

#endif
