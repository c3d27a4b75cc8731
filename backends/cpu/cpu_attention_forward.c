/* attention_forward and attention_cached: online softmax over tiles of 64 keys, one band of up to
 * 256 queries of one head at a time.
 *
 * For each tile of keys, the band's scores are computed 64 rows at a time (queries are scaled when
 * packed), the running maximum and sum of each row are updated, and the weights times v are added
 * to a packed result.  Tiles beyond the diagonal, and before the documents and windows of their
 * rows, are skipped; on the diagonal, strips of 16 rows end at the last key that their last row
 * sees.  The assignment of bands to threads does not affect results: a row's sums depend only on
 * the shape.  16-bit rows are converted to fp32 when packed; y is rounded when written.  Dropout
 * applies to the weights that multiply v, not to the sum: after normalisation, as in PyTorch.
 * attention_cached first appends the new keys and values to the cache, rounded if that has another
 * dtype, and then reads all of them there; prefill and decode differ only in the number of rows.
 */
#include "backends/cpu/cpu_attention.h"

#include <math.h>

/* One band of queries of one head against the keys that it may see. */
struct band {
    struct cpu_rows q, k, v; /* starting at this head's first rows */
    struct cpu_rows y;
    float *lse; /* of the first row; NULL if not needed */
    int64_t first,
        rows;         /* queries first .. first + rows - 1 of the sample; rows <= ATTENTION_BAND */
    int64_t position; /* query i sees keys band_begin() .. position + i */
    int64_t ring;     /* key j is row j % ring; a tile of keys never wraps */
    const int32_t *begin; /* of the band's first row's document; NULL: 0 for all */
    int64_t head_size, padded, time, window;
    float scale;
    const struct cpu_mask *mask; /* NULL without dropout */
};

struct band_scratch {
    float *q, *result;       /* [256, padded] */
    float *k_transposed, *v; /* [padded, 64], [64, padded] */
    float *score, *factor;   /* [64, 64] */
    float *largest, *sum;    /* [256] */
};

/* Returns the first key that row i of the band sees. */
static int64_t band_begin(const struct band *band, int64_t i)
{
    const int32_t *document = band->begin != NULL ? band->begin + i : NULL;
    return attention_begin(document, band->window, band->position + band->first + i);
}

static struct band_scratch scratch_cut(float *memory, int64_t padded)
{
    struct band_scratch s;
    s.q = memory;
    s.result = s.q + ATTENTION_BAND * padded;
    s.k_transposed = s.result + ATTENTION_BAND * padded;
    s.v = s.k_transposed + ATTENTION_TILE * padded;
    s.score = s.v + ATTENTION_TILE * padded;
    s.factor = s.score + ATTENTION_SQUARE;
    s.largest = s.factor + ATTENTION_SQUARE;
    s.sum = s.largest + ATTENTION_BAND;
    return s;
}

/* Turns a row of `width` scores into weights relative to the row's new maximum, and rescales the
 * previous sums.  The row sees keys hidden .. visible - 1. */
static void row_update(float *row, int64_t hidden, int64_t visible, int64_t width, float *largest,
                       float *sum, float *result, int64_t padded)
{
    if (hidden > 0 && hidden >= visible) { /* the maximum may still be -infinity */
        memset(row, 0, (size_t)width * sizeof *row);
        return;
    }
    for (int64_t j = 0; j < hidden; j++)
        row[j] = -INFINITY;
    for (int64_t j = max_i64(visible, 0); j < ATTENTION_TILE; j++)
        row[j] = -INFINITY;
    const float before = *largest, tile = cpu_max_of(row, ATTENTION_TILE),
                after = tile > before ? tile : before;
    const float added = cpu_exp_sum(row, width, after);
    if (after > before) {
        const float shrink = cpu_exp(before - after);
        *sum *= shrink;
        CPU_SIMD(d, padded)
            result[d] *= shrink;
    }
    *largest = after;
    *sum += added;
}

/* Processes `rows` queries from `begin` of the band against the packed tile of `keys` keys from
 * `key`, up to the last key that the last query sees. */
static void rows_run(const struct band *band, const struct band_scratch *s, int64_t begin,
                     int64_t rows, int64_t key, int64_t keys)
{
    const int64_t padded = band->padded, position = band->position + band->first + begin;
    const int64_t seen = min_i64(keys, position + rows - key), width = attention_width(seen);
    float *result = s->result + begin * padded;
    cpu_tile_multiply((struct cpu_tile){s->q + begin * padded, padded, 1},
                      (struct cpu_tile){s->k_transposed, ATTENTION_TILE, 1},
                      (struct cpu_tile){s->score, ATTENTION_TILE, 1}, rows, width, band->head_size,
                      false);
    for (int64_t i = 0; i < rows; i++)
        row_update(s->score + i * ATTENTION_TILE, band_begin(band, begin + i) - key,
                   min_i64(keys, position + i + 1 - key), width, s->largest + begin + i,
                   s->sum + begin + i, result + i * padded, padded);
    if (band->mask != NULL) {
        attention_mask_fill(band->mask, band->time, band->first + begin, key, rows, s->factor);
        for (int64_t i = 0; i < rows; i++) {
            CPU_SIMD(j, width)
                s->score[i * ATTENTION_TILE + j] *= s->factor[i * ATTENTION_TILE + j];
        }
    }
    cpu_tile_multiply((struct cpu_tile){s->score, ATTENTION_TILE, 1},
                      (struct cpu_tile){s->v, padded, 1}, (struct cpu_tile){result, padded, 1},
                      rows, padded, seen, true);
}

/* Processes a square of queries and keys: at once if no key comes after a query, else strip by
 * strip.  Skips rows that see none of the keys: the first one sees the earliest. */
static void square_run(const struct band *band, const struct band_scratch *s, int64_t begin,
                       int64_t key, int64_t keys)
{
    const int64_t end = min_i64(begin + ATTENTION_TILE, band->rows),
                  position = band->position + band->first;
    const int64_t rows = position + begin + 1 - key >= keys ? ATTENTION_TILE : ATTENTION_STRIP;
    for (int64_t i = begin; i < end; i += rows) {
        const int64_t count = min_i64(rows, end - i);
        if (position + i + count > key && band_begin(band, i) < key + keys)
            rows_run(band, s, i, count, key, keys);
    }
}

static void band_write(const struct band *band, const struct band_scratch *s)
{
    for (int64_t i = 0; i < band->rows; i++) {
        const float inverse = 1.0f / s->sum[i];
        const int64_t at = band->y.first + i * band->y.stride;
        float *result = s->result + i * band->padded, *y = cpu_floats_place(band->y.of, at, result);
        CPU_SIMD(d, band->head_size)
            y[d] = result[d] * inverse;
        cpu_floats_write(band->y.of, at, band->head_size, y);
        if (band->lse != NULL)
            band->lse[i] = (float)((double)s->largest[i] + log((double)s->sum[i]));
    }
}

static void band_run(const struct band *band, float *scratch)
{
    const int64_t padded = band->padded, size = band->head_size;
    const struct band_scratch s = scratch_cut(scratch, padded);
    const int64_t height = (int64_t)size_round_up((size_t)band->rows, CPU_TILE_ROWS);
    cpu_tile_pack(s.q, height, padded, &band->q, band->rows, size, band->scale);
    for (int64_t e = 0; e < height * padded; e++)
        s.result[e] = 0.0f;
    for (int64_t i = 0; i < height; i++) {
        s.largest[i] = -INFINITY;
        s.sum[i] = 0.0f;
    }
    const int64_t end = band->position + band->first + band->rows;
    const int64_t start = band_begin(band, 0) / ATTENTION_TILE * ATTENTION_TILE;
    for (int64_t key = start; key < end; key += ATTENTION_TILE) {
        const int64_t keys = min_i64(ATTENTION_TILE, end - key);
        const int64_t row = key % band->ring;
        const struct cpu_rows k = {band->k.of, band->k.first + row * band->k.stride,
                                   band->k.stride};
        const struct cpu_rows v = {band->v.of, band->v.first + row * band->v.stride,
                                   band->v.stride};
        cpu_tile_pack_transposed(s.k_transposed, ATTENTION_TILE, &k, keys, size);
        cpu_tile_pack(s.v, keys, padded, &v, keys, size, 1.0f);
        for (int64_t begin = 0; begin < band->rows; begin += ATTENTION_TILE)
            square_run(band, &s, begin, key, keys);
    }
    band_write(band, &s);
}

/* Returns the floats of scratch that band_run() needs per thread. */
static size_t band_floats(int64_t padded)
{
    return (size_t)(2 * ATTENTION_BAND * padded + 2 * ATTENTION_TILE * padded +
                    2 * ATTENTION_SQUARE + 2 * ATTENTION_BAND);
}

_Static_assert((int)ATTENTION_FORWARD_QKV == (int)ATTENTION_CACHED_QKV,
               "one function serves both ops");
_Static_assert((int)ATTENTION_FORWARD_SCALARS == (int)ATTENTION_CACHED_SCALARS,
               "one function serves both ops");

static size_t bands_workspace_bytes(const struct cpu_backend *cpu, const struct op_call *call)
{
    const struct attention_shape shape =
        attention_shape_of(call, &call->operand[ATTENTION_FORWARD_QKV]);
    return (size_t)cpu->threads * band_floats(shape.padded) * sizeof(float);
}

/* Runs all bands.  `start` has what they share: the dtypes and memory, the strides and first
 * elements of sample 0 and head 0, and lse and begin of the whole call.  k and v of the next sample
 * begin `sample_elements` later. */
static void bands_run(const struct cpu_backend *cpu, const struct op_call *call,
                      const struct attention_shape *shape, const struct band *start,
                      int64_t sample_elements, int64_t work)
{
    const union scalar_word *scalars = cpu_operand(cpu, call, ATTENTION_FORWARD_SCALARS);
    const int64_t size = shape->head_size, bands = size_ceil_div(shape->time, ATTENTION_BAND);
    const int64_t per_sample = shape->heads * bands;
    const size_t thread_floats = band_floats(shape->padded);
    float *scratch = cpu_workspace(cpu, call, bands_workspace_bytes(cpu, call));
    const struct cpu_mask shared = cpu_mask_make(scalars, shape->dropout);
    (void)work; /* used only with OpenMP */
    CPU_OMP(omp parallel for schedule(dynamic, 1) num_threads(cpu_threads_for(cpu, work)))
    for (int64_t item = 0; item < shape->samples * per_sample; item++) {
        const int64_t sample = item / per_sample, head = item % per_sample / bands;
        const int64_t first = (bands - 1 - item % bands) * ATTENTION_BAND; /* longest bands first */
        const int64_t row = sample * shape->time + first, of_head = head / shape->group * size;
        struct cpu_mask mask = shared;
        mask.site = (uint32_t)shape->site + ((uint32_t)head << 16);
        mask.sample = scalars[SCALAR_SAMPLE_BASE].u + (uint32_t)sample;
        struct band band = *start;
        band.q.first = row * shape->row + head * size;
        band.k.first += sample * sample_elements + of_head;
        band.v.first += sample * sample_elements + of_head;
        band.y.first = (row * shape->heads + head) * size;
        if (band.lse != NULL)
            band.lse += (sample * shape->heads + head) * shape->time + first;
        if (band.begin != NULL)
            band.begin += row;
        band.first = first;
        band.rows = min_i64(ATTENTION_BAND, shape->time - first);
        band.mask = shared.threshold != 0 ? &mask : NULL;
        band_run(&band, scratch + (size_t)cpu_thread_index() * thread_floats);
    }
}

/* Returns the start of bands_run(), without k and v. */
static struct band band_start(const struct attention_shape *shape, struct cpu_floats qkv,
                              struct cpu_floats y)
{
    return (struct band){.q = {qkv, 0, shape->row},
                         .y = {y, 0, shape->heads * shape->head_size},
                         .head_size = shape->head_size,
                         .padded = shape->padded,
                         .time = shape->time,
                         .ring = shape->time,
                         .window = shape->window,
                         .scale = shape->scale};
}

static void attention_forward_run(const struct cpu_backend *cpu, const struct op_call *call)
{
    const struct attention_shape shape =
        attention_shape_of(call, &call->operand[ATTENTION_FORWARD_QKV]);
    const struct cpu_floats qkv = cpu_floats_of(cpu, call, ATTENTION_FORWARD_QKV);
    const int64_t work =
        shape.samples * shape.time * shape.row * min_i64(shape.time, ATTENTION_TILE) / 4;
    struct band start = band_start(&shape, qkv, cpu_floats_of(cpu, call, ATTENTION_FORWARD_Y));
    start.k = (struct cpu_rows){qkv, shape.heads * shape.head_size, shape.row};
    start.v = (struct cpu_rows){qkv, (shape.heads + shape.kv_heads) * shape.head_size, shape.row};
    start.lse = cpu_operand(cpu, call, ATTENTION_FORWARD_LSE);
    start.begin = cpu_operand(cpu, call, ATTENTION_FORWARD_FIRST);
    bands_run(cpu, call, &shape, &start, shape.time * shape.row, work);
}

static void attention_cached_run(const struct cpu_backend *cpu, const struct op_call *call)
{
    struct attention_shape shape = attention_shape_of(call, &call->operand[ATTENTION_CACHED_QKV]);
    shape.dropout = 0.0f;
    const struct cpu_floats qkv = cpu_floats_of(cpu, call, ATTENTION_CACHED_QKV);
    const struct cpu_floats cache = cpu_floats_of(cpu, call, ATTENTION_CACHED_CACHE);
    const union scalar_word *scalars = cpu_operand(cpu, call, ATTENTION_CACHED_SCALARS);
    const int64_t size = shape.head_size, width = shape.kv_heads * size;
    const int64_t capacity = call->operand[ATTENTION_CACHED_CACHE].dims[2],
                  position = scalars[SCALAR_POSITION].i;
    const int64_t values = shape.samples * capacity * width; /* keys precede values */
    assert(position >= 0 && (position + shape.time <= capacity || op_cache_is_ring(call)));
    for (int64_t n = 0; n < shape.samples * shape.time; n++) {
        const int64_t row = n / shape.time * capacity + (position + n % shape.time) % capacity;
        const int64_t source = n * shape.row + shape.heads * size;
        cpu_floats_move(cache, row * width, qkv, source, width);
        cpu_floats_move(cache, values + row * width, qkv, source + width, width);
    }
    const int64_t seen = min_i64(position + shape.time, capacity);
    const int64_t work = shape.samples * shape.time * shape.heads * size * seen;
    struct band start = band_start(&shape, qkv, cpu_floats_of(cpu, call, ATTENTION_CACHED_Y));
    start.k = (struct cpu_rows){cache, 0, width};
    start.v = (struct cpu_rows){cache, values, width};
    start.position = position;
    start.ring = capacity;
    bands_run(cpu, call, &shape, &start, capacity * width, work);
}

const struct cpu_op CPU_NAME(cpu_attention_forward) = {.workspace_bytes = bands_workspace_bytes,
                                                       .run = attention_forward_run};
const struct cpu_op CPU_NAME(cpu_attention_cached) = {.workspace_bytes = bands_workspace_bytes,
                                                      .run = attention_cached_run};
