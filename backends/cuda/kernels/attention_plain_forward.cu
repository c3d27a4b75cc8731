/* attention_forward in fp32 arithmetic, for fp32 and mixtures of dtypes: online softmax over tiles of 32 keys.  A block
 * has 64 queries of one head, 16 for each warp.
 *
 * The keys and the values of a tile use one buffer in turn, so that 64 KiB of shared memory suffice for every head
 * size: 22, 36, 48, 60 KiB for D = 32, 64, 96, 128.  No TF32, no tensor cores.  The rest is as in
 * attention_tile_forward.cu: running maxima and sums, dropout of the weights that multiply v, tiles beyond the diagonal
 * never touched, queries that may begin at a position.
 */
#include "backends/cuda/kernels/attention_plain.h"

#define QUERIES CUDA_ATTENTION_TILE
#define KEYS 32
#define ROWS_I 4 /* rows and columns of scores in a lane */
#define KEYS_J 4

template <int D>
constexpr size_t plain_forward_bytes = ((QUERIES + KEYS) * plain_stride<D> +
                                        QUERIES * weight_stride<KEYS>)*sizeof(float);

/* Scales the scores, and sets those of keys that the query does not see to minus infinity.  `query` is the lane's first
 * row, `row` its position among the keys, `key` the first key. */
DEVICE void plain_scores_mask(const struct cuda_attention &attention, float (&score)[ROWS_I][KEYS_J], int sample,
                              int query, int row, int key)
{
    UNROLLED(i, ROWS_I) {
        UNROLLED(j, KEYS_J)
            score[i][j] = key + plain_x() + 8 * j > row + 4 * i ||
                                  key + plain_x() + 8 * j < attention_begin(attention, sample, query + 4 * i)
                              ? -INFINITY
                              : score[i][j] * attention.scale;
    }
}

/* Turns scores into weights relative to the new maximum of their row, and rescales what was summed before. */
template <int D>
DEVICE void plain_weights_make(float (&score)[ROWS_I][KEYS_J], float (&largest)[ROWS_I], float (&sum)[ROWS_I],
                               float (&result)[ROWS_I][D / 8])
{
    UNROLLED(i, ROWS_I) {
        float after = largest[i], added = 0.0f;
        UNROLLED(j, KEYS_J)
            after = fmaxf(after, score[i][j]);
        after = cuda_lanes_max<8>(after);
        const float zero = after == -INFINITY ? 0.0f : after; /* a row may have seen no key of its document so far */
        const float shrink = expf(largest[i] - zero);
        UNROLLED(j, KEYS_J) {
            score[i][j] = expf(score[i][j] - zero);
            added += score[i][j];
        }
        largest[i] = after;
        sum[i] = fmaf(sum[i], shrink, added);
        UNROLLED(n, D / 8)
            result[i][n] *= shrink;
    }
}

/* Each of the warp's 16 rows has 4 groups of keys: a lane draws group 2 (x % 2) and the next one of row y + 4 (x /
 * 2). */
DEVICE void plain_weights_drop(const struct cuda_attention &attention, const struct dropout_mask &mask,
                               float (&weight)[ROWS_I][KEYS_J], int query, int key)
{
    const int x = plain_x(), y = plain_y();
    const int64_t group = attention_mask_group(attention, query + y + x / 2 * 4, key) + x % 2 * 2;
    const uint32_t bits = dropout_kept(&mask, group) | dropout_kept(&mask, group + 1) << 8;
    UNROLLED(i, ROWS_I) {
        UNROLLED(j, KEYS_J) {
            const uint32_t kept = __shfl_sync(ALL_LANES, bits, y * 8 + i * 2 + j / 2) >> (j % 2 * 8 + x);
            weight[i][j] = (kept & 1u) != 0 ? weight[i][j] : 0.0f;
        }
    }
}

template <int D>
__global__ void __launch_bounds__(PLAIN_THREADS) attention_forward_plain(const struct cuda_attention attention)
{
    DYN_SHARED(float, shared);
    const struct forward_place place = forward_place_of<QUERIES, KEYS>(attention);
    const int warp_row = cuda_warp() * 4 * ROWS_I, kv_head = place.head / (attention.heads / attention.kv_heads);
    float *q = shared, *other = q + QUERIES * plain_stride<D>;
    float *weights = other + KEYS * plain_stride<D> + warp_row * weight_stride<KEYS>,
          *own = q + warp_row * plain_stride<D>;
    const int first = place.position + place.query; /* position of the tile's first query among the keys */
    const int end = min(place.position + attention.time, first + QUERIES), row = first + warp_row + plain_y();
    float result[ROWS_I][D / 8], largest[ROWS_I], sum[ROWS_I];
    plain_clear(result);
    UNROLLED(i, ROWS_I) {
        largest[i] = -INFINITY;
        sum[i] = 0.0f;
    }
    struct dropout_mask mask;
    if (attention.threshold != 0)
        mask = attention_mask_make(attention, place.sample, place.head);
    plain_load<D, QUERIES>(q, attention, attention.q, place.sample, place.head, place.query, attention.time);
    for (int key = place.start; key < end; key += KEYS) {
        plain_load<D, KEYS>(other, attention, attention.k, place.sample, kv_head, key, end);
        __syncthreads(); /* the keys have arrived, and before the first tile the queries */
        float score[ROWS_I][KEYS_J];
        plain_scores<D>(score, own, other);
        __syncthreads(); /* the keys are no longer read */
        plain_load<D, KEYS>(other, attention, attention.v, place.sample, kv_head, key, end);
        plain_scores_mask(attention, score, place.sample, place.query + warp_row + plain_y(), row, key);
        plain_weights_make<D>(score, largest, sum, result);
        if (attention.threshold != 0)
            plain_weights_drop(attention, mask, score, place.query + warp_row, key);
        plain_weights_put(weights, score);
        __syncthreads(); /* the values have arrived, and the warp's weights are written */
        plain_add<D, ROWS_I, KEYS_J>(result, weights, other);
        __syncthreads(); /* neither is read any more */
    }
    const float scale = attention.threshold != 0 ? attention.kept_scale : 1.0f;
    const int64_t statistics = ((int64_t)place.sample * attention.heads + place.head) * attention.time;
    float factor[ROWS_I];
    UNROLLED(i, ROWS_I) {
        const float total = cuda_lanes_sum<8>(sum[i]);
        const int at = place.query + warp_row + plain_y() + 4 * i;
        factor[i] = scale / total;
        if (attention.lse != NULL && plain_x() == 0 && at < attention.time)
            attention.lse[statistics + at] = largest[i] + logf(total);
    }
    plain_store<D, ROWS_I>(own, result, factor, attention, attention.y, place.sample, place.head,
                           place.query + warp_row, attention.time);
}

/* ---- host side ---- */

extern "C" cudaError_t cuda_launch_attention_forward_plain(cudaStream_t stream, const struct cuda_attention *attention)
{
    const auto instance = attention_by_size(attention->head_size, [](auto size) {
        return attention_instance{attention_forward_plain<size()>, plain_forward_bytes<size()>};
    });
    return attention_launch(stream, instance, QUERIES, attention->heads, PLAIN_THREADS, attention);
}
