/* attention_backward: dq, dk and dv from recomputed weights, one key-value head of one sample at a
 * time.
 *
 * For each tile of 64 keys, and each tile of 64 queries at or after it, the scores are recomputed:
 *   p = exp(s - lse),   ds = p (f (dy v') - delta),   delta = rowsum(dy y)
 *   dv += (p f)' dy,    dk += ds' q,                  dq += ds k             Dao 2023, algorithm 2
 * where f are the dropout factors.  dk and dv of a tile stay in scratch.  dq is accumulated in
 * increasing order of the tiles: in place if it is fp32, else in scratch, so that it is rounded
 * once.  Heads that share a key-value head are processed in order.  Scores use the same packed,
 * scaled queries and the same product as the forward pass, so p has the forward pass's values.
 */
#include "backends/cpu/cpu_attention.h"

struct backward_item {
    const struct attention_shape *shape;
    struct cpu_floats qkv, dy, y, dqkv;
    int64_t first;        /* first row of the sample */
    const float *lse;     /* of the sample's first head */
    const int32_t *begin; /* of the sample's first row; NULL: 0 for all */
    int64_t kv_head;
    struct cpu_mask mask;
};

struct backward_scratch {
    float *k_transposed, *v_transposed; /* [padded, 64] */
    float *k, *dk, *dv;                 /* [64, padded]; k is scaled */
    float *q, *dy, *dq;                 /* [64, padded]; q is scaled */
    float *weight, *slope, *factor;     /* [64, 64] */
    float *delta;                       /* [group, time] */
    float *dq_sum;                      /* [group, time, head size], if dqkv is not fp32 */
};

static size_t scratch_floats(const struct attention_shape *shape, enum dtype dqkv)
{
    const int64_t rows = shape->group * shape->time,
                  sums = dqkv == DTYPE_F32 ? 0 : rows * shape->head_size;
    const int64_t floats = 8 * ATTENTION_TILE * shape->padded + 3 * ATTENTION_SQUARE + rows + sums;
    return size_round_up((size_t)floats, CPU_ALIGNMENT_BYTES / sizeof(float));
}

static struct backward_scratch scratch_cut(float *memory, const struct attention_shape *shape)
{
    const int64_t tile = ATTENTION_TILE * shape->padded;
    struct backward_scratch s = {
        .k_transposed = memory,
        .v_transposed = memory + tile,
        .k = memory + 2 * tile,
        .dk = memory + 3 * tile,
        .dv = memory + 4 * tile,
        .q = memory + 5 * tile,
        .dy = memory + 6 * tile,
        .dq = memory + 7 * tile,
        .weight = memory + 8 * tile,
    };
    s.slope = s.weight + ATTENTION_SQUARE;
    s.factor = s.slope + ATTENTION_SQUARE;
    s.delta = s.factor + ATTENTION_SQUARE;
    s.dq_sum = s.delta + shape->group * shape->time;
    return s;
}

static void delta_compute(const struct backward_item *item, const struct backward_scratch *s)
{
    const struct attention_shape *shape = item->shape;
    const int64_t size = shape->head_size, row = shape->heads * size;
    for (int64_t h = 0; h < shape->group; h++) {
        for (int64_t t = 0; t < shape->time; t++) {
            const int64_t at = (item->first + t) * row + (item->kv_head * shape->group + h) * size;
            const float *dy = cpu_floats_read(item->dy, at, size, s->dy);
            const float *y = cpu_floats_read(item->y, at, size, s->q);
            double sum = 0.0;
            CPU_SIMD_SUM(d, size, sum)
                sum += (double)dy[d] * (double)y[d];
            s->delta[h * shape->time + t] = (float)sum;
        }
    }
}

/* weight := p f and slope := ds, from `width` scores and dy v'; 0 for keys before `hidden` and from
 * `visible` on. `factor` may be NULL. */
static void row_slopes(float *weight, float *slope, int64_t width, const float *factor, float lse,
                       float delta, int64_t hidden, int64_t visible)
{
    if (factor != NULL) {
        CPU_SIMD(j, width) {
            const float p = cpu_exp(weight[j] - lse);
            weight[j] = p * factor[j];
            slope[j] = p * (slope[j] * factor[j] - delta);
        }
    } else {
        CPU_SIMD(j, width) {
            const float p = cpu_exp(weight[j] - lse);
            weight[j] = p;
            slope[j] = p * (slope[j] - delta);
        }
    }
    for (int64_t j = 0; j < min_i64(hidden, width); j++)
        weight[j] = slope[j] = 0.0f;
    for (int64_t j = max_i64(visible, 0); j < width; j++) {
        weight[j] = 0.0f;
        slope[j] = 0.0f;
    }
}

/* Returns the first key that a query of the item's sample sees. */
static int64_t item_begin(const struct backward_item *item, int64_t query)
{
    return attention_begin(item->begin != NULL ? item->begin + query : NULL, item->shape->window,
                           query);
}

/* out[keys, padded] += square[rows, keys]' by_query[rows, padded]: contributions of a square's
 * queries to its keys. */
static void keys_add(float *square, float *by_query, float *out, int64_t rows, int64_t keys,
                     int64_t padded)
{
    cpu_tile_multiply((struct cpu_tile){square, 1, ATTENTION_TILE},
                      (struct cpu_tile){by_query, padded, 1}, (struct cpu_tile){out, padded, 1},
                      keys, padded, rows, true);
}

/* Returns the rows that accumulate dq of `head`, from row `query` of the sample on. */
static struct cpu_rows dq_rows(const struct backward_item *item, const struct backward_scratch *s,
                               int64_t head, int64_t query)
{
    const struct attention_shape *shape = item->shape;
    const int64_t size = shape->head_size;
    if (item->dqkv.dtype == DTYPE_F32)
        return (struct cpu_rows){item->dqkv, (item->first + query) * shape->row + head * size,
                                 shape->row};
    const struct cpu_floats sums = {s->dq_sum, DTYPE_F32};
    return (struct cpu_rows){sums, (head % shape->group * shape->time + query) * size, size};
}

/* One square: `rows` queries from `query` of head `head`, `keys` keys from `key`. */
struct square {
    const struct backward_item *item;
    const struct backward_scratch *s;
    int64_t head, query, rows, key, keys;
};

/* Processes queries first .. first + rows - 1 of a square against the keys that the last one sees:
 * computes p and ds, and adds the keys' contributions to dq. */
static void rows_run(const struct square *square, int64_t first, int64_t rows)
{
    const struct backward_scratch *s = square->s;
    const struct backward_item *item = square->item;
    const struct attention_shape *shape = item->shape;
    const int64_t padded = shape->padded, tile = ATTENTION_TILE, query = square->query + first;
    const int64_t seen = min_i64(square->keys, query + rows - square->key),
                  width = attention_width(seen);
    float *weight = s->weight + first * tile, *slope = s->slope + first * tile;
    const float *factor = item->mask.threshold != 0 ? s->factor + first * tile : NULL;
    const float *lse = item->lse + square->head * shape->time + query;
    const float *delta = s->delta + square->head % shape->group * shape->time + query;
    cpu_tile_multiply((struct cpu_tile){s->q + first * padded, padded, 1},
                      (struct cpu_tile){s->k_transposed, tile, 1},
                      (struct cpu_tile){weight, tile, 1}, rows, width, shape->head_size, false);
    cpu_tile_multiply((struct cpu_tile){s->dy + first * padded, padded, 1},
                      (struct cpu_tile){s->v_transposed, tile, 1},
                      (struct cpu_tile){slope, tile, 1}, rows, width, shape->head_size, false);
    for (int64_t i = 0; i < rows; i++)
        row_slopes(weight + i * tile, slope + i * tile, width,
                   factor != NULL ? factor + i * tile : NULL, lse[i], delta[i],
                   item_begin(item, query + i) - square->key,
                   min_i64(square->keys, query + i + 1 - square->key));
    cpu_tile_multiply((struct cpu_tile){slope, tile, 1}, (struct cpu_tile){s->k, padded, 1},
                      (struct cpu_tile){s->dq + first * padded, padded, 1}, rows, padded, seen,
                      true);
}

/* Processes one square.  On the diagonal, strips of queries skip keys that they do not see, and
 * strips of keys skip queries that do not see them. */
static void square_run(const struct square *square)
{
    const struct backward_scratch *s = square->s;
    const struct backward_item *item = square->item;
    const struct attention_shape *shape = item->shape;
    const int64_t size = shape->head_size, padded = shape->padded, rows = square->rows,
                  keys = square->keys;
    const int64_t height = (int64_t)size_round_up((size_t)rows, CPU_TILE_ROWS),
                  row = item->first + square->query;
    const int64_t strip = square->query > square->key ? ATTENTION_TILE : ATTENTION_STRIP;
    const struct cpu_rows q = {item->qkv, row * shape->row + square->head * size, shape->row};
    const struct cpu_rows dy = {item->dy, (row * shape->heads + square->head) * size,
                                shape->heads * size};
    const struct cpu_rows dq = dq_rows(item, s, square->head, square->query);
    cpu_tile_pack(s->q, height, padded, &q, rows, size, shape->scale);
    cpu_tile_pack(s->dy, height, padded, &dy, rows, size, 1.0f);
    const int64_t start = item_begin(item, square->query) / ATTENTION_TILE * ATTENTION_TILE;
    cpu_tile_pack(s->dq, height, padded, &dq, square->key == start ? 0 : rows, size, 1.0f);
    if (item->mask.threshold != 0) {
        struct cpu_mask mask = item->mask;
        mask.site = (uint32_t)shape->site + ((uint32_t)square->head << 16);
        attention_mask_fill(&mask, shape->time, square->query, square->key, rows, s->factor);
    }
    for (int64_t i = 0; i < rows; i += strip)
        rows_run(square, i, min_i64(strip, rows - i));
    for (int64_t j = 0; j < keys; j += strip) {
        const int64_t from = strip < ATTENTION_TILE ? j : 0, square_at = from * ATTENTION_TILE + j;
        const int64_t count = min_i64(strip, keys - j);
        keys_add(s->weight + square_at, s->dy + from * padded, s->dv + j * padded, rows - from,
                 count, padded);
        keys_add(s->slope + square_at, s->q + from * padded, s->dk + j * padded, rows - from, count,
                 padded);
    }
    for (int64_t i = 0; i < rows; i++)
        cpu_floats_write(dq.of, dq.first + i * dq.stride, size, s->dq + i * padded);
}

/* Rounds the sums of dq into dqkv, if they are in scratch. */
static void dq_store(const struct backward_item *item, const struct backward_scratch *s)
{
    const struct attention_shape *shape = item->shape;
    const int64_t size = shape->head_size;
    for (int64_t h = 0; item->dqkv.dtype != DTYPE_F32 && h < shape->group; h++) {
        const int64_t head = item->kv_head * shape->group + h;
        for (int64_t t = 0; t < shape->time; t++)
            cpu_floats_write(item->dqkv, (item->first + t) * shape->row + head * size, size,
                             s->dq_sum + (h * shape->time + t) * size);
    }
}

static void item_run(const struct backward_item *item, float *memory)
{
    const struct attention_shape *shape = item->shape;
    const int64_t size = shape->head_size, padded = shape->padded, tile = ATTENTION_TILE,
                  row = shape->row;
    const struct backward_scratch s = scratch_cut(memory, shape);
    const int64_t k_column = (shape->heads + item->kv_head) * size,
                  v_column = k_column + shape->kv_heads * size;
    delta_compute(item, &s);
    for (int64_t key = 0; key < shape->time; key += tile) {
        const int64_t keys = min_i64(tile, shape->time - key);
        const struct cpu_rows k = {item->qkv, (item->first + key) * row + k_column, row};
        const struct cpu_rows v = {item->qkv, (item->first + key) * row + v_column, row};
        cpu_tile_pack_transposed(s.k_transposed, tile, &k, keys, size);
        cpu_tile_pack_transposed(s.v_transposed, tile, &v, keys, size);
        cpu_tile_pack(s.k, keys, padded, &k, keys, size, shape->scale);
        for (int64_t e = 0; e < 2 * tile * padded; e++)
            s.dk[e] = 0.0f; /* also clears dv, which follows dk */
        for (int64_t h = 0; h < shape->group; h++) {
            for (int64_t query = key; query < shape->time && item_begin(item, query) < key + keys;
                 query += tile)
                square_run(&(struct square){.item = item,
                                            .s = &s,
                                            .head = item->kv_head * shape->group + h,
                                            .query = query,
                                            .rows = min_i64(tile, shape->time - query),
                                            .key = key,
                                            .keys = keys});
        }
        for (int64_t j = 0; j < keys; j++) {
            const int64_t at = (item->first + key + j) * row;
            cpu_floats_write(item->dqkv, at + k_column, size, s.dk + j * padded);
            cpu_floats_write(item->dqkv, at + v_column, size, s.dv + j * padded);
        }
    }
    dq_store(item, &s);
}

static size_t attention_backward_workspace_bytes(const struct cpu_backend *cpu,
                                                 const struct op_call *call)
{
    const struct attention_shape shape =
        attention_shape_of(call, &call->operand[ATTENTION_BACKWARD_QKV]);
    const enum dtype dqkv = call->operand[ATTENTION_BACKWARD_DQKV].dtype;
    return (size_t)cpu->threads * scratch_floats(&shape, dqkv) * sizeof(float);
}

static void attention_backward_run(const struct cpu_backend *cpu, const struct op_call *call)
{
    const struct attention_shape shape =
        attention_shape_of(call, &call->operand[ATTENTION_BACKWARD_QKV]);
    const float *lse = cpu_operand(cpu, call, ATTENTION_BACKWARD_LSE);
    const int32_t *begin = cpu_operand(cpu, call, ATTENTION_BACKWARD_FIRST);
    const union scalar_word *scalars = cpu_operand(cpu, call, ATTENTION_BACKWARD_SCALARS);
    const struct cpu_floats dqkv = cpu_floats_of(cpu, call, ATTENTION_BACKWARD_DQKV);
    const size_t thread_floats = scratch_floats(&shape, dqkv.dtype);
    float *scratch = cpu_workspace(cpu, call, (size_t)cpu->threads * thread_floats * sizeof(float));
    const struct cpu_mask mask = cpu_mask_make(scalars, shape.dropout);
    const int64_t work =
        shape.samples * shape.time * shape.row * min_i64(shape.time, ATTENTION_TILE) / 4;
    (void)work; /* used only with OpenMP */
    CPU_OMP(omp parallel for schedule(dynamic, 1) num_threads(cpu_threads_for(cpu, work)))
    for (int64_t index = 0; index < shape.samples * shape.kv_heads; index++) {
        const int64_t sample = index / shape.kv_heads;
        struct backward_item item = {
            .shape = &shape,
            .qkv = cpu_floats_of(cpu, call, ATTENTION_BACKWARD_QKV),
            .dy = cpu_floats_of(cpu, call, ATTENTION_BACKWARD_DY),
            .y = cpu_floats_of(cpu, call, ATTENTION_BACKWARD_Y),
            .dqkv = dqkv,
            .first = sample * shape.time,
            .lse = lse + sample * shape.heads * shape.time,
            .begin = begin != NULL ? begin + sample * shape.time : NULL,
            .kv_head = index % shape.kv_heads,
            .mask = mask,
        };
        item.mask.sample = scalars[SCALAR_SAMPLE_BASE].u + (uint32_t)sample;
        item_run(&item, scratch + (size_t)cpu_thread_index() * thread_floats);
    }
}

const struct cpu_op CPU_NAME(cpu_attention_backward) = {
    .workspace_bytes = attention_backward_workspace_bytes, .run = attention_backward_run};
