/* Tile sizes, shapes and masks shared by attention's forward, backward and cached files. */
#ifndef GPT_TRAIN_CPU_CPU_ATTENTION_H
#define GPT_TRAIN_CPU_CPU_ATTENTION_H

#include "backends/cpu/cpu_philox.h"
#include "backends/cpu/cpu_tile.h"

#define ATTENTION_TILE 64  /* keys, and queries, in a square of scores */
#define ATTENTION_BAND 256 /* queries that share the transposition of a tile of keys */
/* Rows of a square on the diagonal that are cut to their visible keys. */
#define ATTENTION_STRIP 16
#define ATTENTION_SQUARE (ATTENTION_TILE * ATTENTION_TILE)

struct attention_shape {
    int64_t samples, time, heads, kv_heads, group; /* group = heads / kv_heads */
    int64_t head_size, padded;                     /* padded to whole tiles */
    int64_t row;                                   /* elements in a row of qkv */
    int64_t window;                                /* 0: none */
    float scale;
    float dropout;
    int32_t site;
};

static inline struct attention_shape attention_shape_of(const struct op_call *call,
                                                        const struct operand *qkv)
{
    const struct op_attrs *attrs = &call->attrs;
    struct attention_shape shape = {.samples = qkv->dims[0] / attrs->time,
                                    .time = attrs->time,
                                    .heads = attrs->heads,
                                    .kv_heads = attrs->kv_heads,
                                    .group = attrs->heads / attrs->kv_heads,
                                    .row = qkv->dims[1],
                                    .window = attrs->window,
                                    .scale = attrs->softmax_scale,
                                    .dropout = attrs->dropout,
                                    .site = attrs->site};
    shape.head_size = shape.row / (shape.heads + 2 * shape.kv_heads);
    shape.padded = (int64_t)size_round_up((size_t)shape.head_size, CPU_TILE_COLUMNS);
    return shape;
}

/* Returns the first key that the query at position `at` of a sample sees: the first of its
 * document, if `document` is not NULL, or of its window, whichever is later. */
static inline int64_t attention_begin(const int32_t *document, int64_t window, int64_t at)
{
    const int64_t first = document != NULL ? *document : 0;
    return window > 0 ? max_i64(first, at - window + 1) : first;
}

/* Returns the columns of a square that `seen` keys occupy in products. */
static inline int64_t attention_width(int64_t seen)
{
    return (int64_t)size_round_up((size_t)max_i64(seen, 0), CPU_TILE_COLUMNS);
}

/* Fills factor[64,64] for the queries from `query` and the keys from `key` (a multiple of 64), for
 * `rows` queries. */
static inline void attention_mask_fill(const struct cpu_mask *mask, int64_t time, int64_t query,
                                       int64_t key, int64_t rows, float *factor)
{
    const int64_t groups_per_row = size_ceil_div(time, 8);
    for (int64_t i = 0; i < rows; i++)
        cpu_mask_fill(mask, (query + i) * groups_per_row + key / 8, ATTENTION_TILE / 8,
                      factor + i * ATTENTION_TILE);
}

#endif
