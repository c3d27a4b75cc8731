/* The common parts of the tiled and the plain attention kernels: which rows a block owns and how
 * far it walks, dropout masks, and how much shared memory a kernel may use.
 *
 * Forward: a block owns a tile of queries of one head and walks over the keys that they see, from
 * the first query's document or window on.  Backward: see attention_tile_backward.cu.  Blocks with
 * the most work start first; no block depends on another one's result.
 */
#ifndef GPT_TRAIN_CUDA_KERNELS_ATTENTION_PLACE_H
#define GPT_TRAIN_CUDA_KERNELS_ATTENTION_PLACE_H

#include "backends/cuda/cuda_attention.h"
#include "backends/cuda/cuda_floats.h"

/* Returns the index of the first element of a row of one head of one sample. */
DEVICE int64_t attention_row(const struct cuda_attention_rows &rows, int sample, int64_t row,
                             int head, int head_size)
{
    return rows.first + sample * rows.sample + row * rows.row + (int64_t)head * head_size;
}

/* Returns the span of columns column .. column + 7 of a row, cut off at the head size. */
DEVICE struct cuda_span attention_span(const struct cuda_attention &attention, int64_t row,
                                       int column)
{
    return {row + column, min(CUDA_GROUP, attention.head_size - column),
            attention.unit == CUDA_GROUP};
}

/* Returns where the document of a query begins.  Queries from the time on are zeros, and have none.
 *
 * Scores are hidden by selections: of a branch for each score, nvcc makes two with their own
 * barriers, 17 instructions a score instead of 2. */
DEVICE int attention_document(const struct cuda_attention &attention, int sample, int query)
{
    return attention.begin != NULL && query < attention.time
               ? attention.begin[(int64_t)sample * attention.time + query]
               : 0;
}

/* Returns the first key that a query of a sample sees, at `position` queries more among the keys:
 * that of its document or of its window. */
DEVICE int attention_begin(const struct cuda_attention &attention, int sample, int query,
                           int position = 0)
{
    const int document = attention_document(attention, sample, query);
    return attention.window > 0 ? max(document, position + query - attention.window + 1) : document;
}

/* The sample and head that a block of the forward works on, and where its queries begin. */
struct forward_place {
    int sample, head, query;
    int position; /* of query 0 among the keys */
    int start;    /* the first tile of keys that a query sees */
};

template <int QUERIES, int KEYS>
DEVICE struct forward_place forward_place_of(const struct cuda_attention &attention)
{
    const int tiles = (attention.time + QUERIES - 1) / QUERIES, item = (int)blockIdx.x / tiles;
    struct forward_place place;
    place.query = (tiles - 1 - (int)blockIdx.x % tiles) * QUERIES;
    place.head = item % attention.heads;
    place.sample = item / attention.heads;
    place.position = attention.positioned ? attention.scalars[SCALAR_POSITION].i : 0;
    place.start =
        attention_begin(attention, place.sample, place.query, place.position) / KEYS * KEYS;
    return place;
}

/* The rows that a block of the backward owns, and how far it walks. */
struct backward_place {
    int sample, head; /* by keys: a head of the keys; else of the queries */
    int own;          /* first row that the block owns */
    int first, tiles; /* first of the other rows, and how many tiles they make in each head */
    int heads;        /* heads to walk through: those that share the keys; else 1 */
};

/* Returns the end of the queries from `low` on that see a key before `key_end`: their documents
 * begin in order. */
DEVICE int queries_end(const struct cuda_attention &attention, int sample, int low, int key_end)
{
    int end = attention.time;
    while (attention.begin != NULL && low < end) {
        const int middle = (low + end) / 2;
        if (attention_document(attention, sample, middle) < key_end)
            low = middle + 1;
        else
            end = middle;
    }
    return attention.window > 0 && attention.window <= end - key_end
               ? key_end + attention.window - 1
               : end;
}

/* `own` numbers the tiles of own rows of all heads of all samples. */
template <bool KEYS, int OWN, int OTHER>
DEVICE struct backward_place backward_place_of(const struct cuda_attention &attention,
                                               int own = (int)blockIdx.x)
{
    const int tiles = (attention.time + OWN - 1) / OWN, item = own / tiles;
    const int tile = own % tiles, heads = KEYS ? attention.kv_heads : attention.heads;
    struct backward_place place;
    place.own = (KEYS ? tile : tiles - 1 - tile) * OWN;
    place.head = item % heads;
    place.sample = item / heads;
    place.first =
        KEYS ? place.own : attention_begin(attention, place.sample, place.own) / OTHER * OTHER;
    const int end = KEYS ? queries_end(attention, place.sample, place.own, place.own + OWN)
                         : min(place.own + OWN, attention.time);
    place.tiles = (end - place.first + OTHER - 1) / OTHER;
    place.heads = KEYS ? attention.heads / attention.kv_heads : 1;
    return place;
}

/* The mask of one head, and the group of eight elements that (query, key) belongs to: see op.h. */
DEVICE struct dropout_mask attention_mask_make(const struct cuda_attention &attention, int sample,
                                               int head)
{
    return dropout_mask_of(attention.scalars, (uint32_t)attention.site + ((uint32_t)head << 16),
                           (uint32_t)sample, attention.threshold);
}

DEVICE int64_t attention_mask_group(const struct cuda_attention &attention, int query, int key)
{
    return (int64_t)query * ((attention.time + 7) / 8) + key / 8;
}

/* ---- host side ---- */

typedef void (*attention_kernel)(const struct cuda_attention);

struct attention_instance {
    attention_kernel kernel;
    size_t shared_bytes;
};

/* Returns instance(size) for the smallest compiled head size that is enough, a constant. */
template <typename Instance>
static inline auto attention_by_size(int32_t head_size, Instance instance)
{
    return head_size <= 32    ? instance(std::integral_constant<int, 32>())
           : head_size <= 64  ? instance(std::integral_constant<int, 64>())
           : head_size <= 96  ? instance(std::integral_constant<int, 96>())
           : head_size <= 128 ? instance(std::integral_constant<int, 128>())
                              : instance(std::integral_constant<int, 256>());
}

/* Launches a block for each tile of `own` rows of each head of each sample, or attention->blocks,
 * with as much shared memory as it needs. */
static inline cudaError_t attention_launch(cudaStream_t stream, struct attention_instance instance,
                                           int own, int heads, int threads,
                                           const struct cuda_attention *attention)
{
    const int tiles = (attention->time + own - 1) / own, items = tiles * heads * attention->samples;
    const cudaError_t error =
        cuda_shared_prefer((const void *)instance.kernel, instance.shared_bytes);
    if (error != cudaSuccess)
        return error;
    return LAUNCH(instance.kernel,
                  dim3((unsigned)(attention->blocks > 0 ? attention->blocks : items)),
                  dim3((unsigned)threads), instance.shared_bytes, stream, *attention);
}

#endif
