/* attention_forward in fp32 arithmetic, for fp32 and mixtures of dtypes: online softmax over tiles
 * of 32 keys.  A block has 64 queries of one head, 16 for each warp; for heads above 128 columns
 * these numbers are half as large.
 *
 * The keys and the values of a tile use one buffer in turn, so that 64 KiB of shared memory suffice
 * for every head size: 22, 36, 48, 60, 52 KiB for D = 32, 64, 96, 128, 256.  No TF32, no tensor
 * cores.  The rest is as in attention_tile_forward.cu: running maxima and sums, dropout of the
 * weights that multiply v, tiles beyond the diagonal never touched, queries that may begin at a
 * position.
 */
#include "backends/cuda/kernels/attention_plain.h"

/* Rows and columns of scores in a lane. */
template <int D> constexpr int lane_rows = D <= CUDA_ATTENTION_HEAD_SIZE_SMALL ? 4 : 2;
template <int D> constexpr int lane_keys = lane_rows<D>;
template <int D> constexpr int block_queries = PLAIN_WARPS * 4 * lane_rows<D>;
template <int D> constexpr int tile_keys = 8 * lane_keys<D>;

template <int D>
constexpr size_t plain_forward_bytes = ((block_queries<D> + tile_keys<D>)*plain_stride<D> +
                                        block_queries<D> *
                                            weight_stride<tile_keys<D>>)*sizeof(float);

/* Scales the scores, and sets those of keys that the query does not see to minus infinity.  `query`
 * is the lane's first row, `key` the first key. */
template <int I, int J>
DEVICE void plain_scores_mask(const struct cuda_attention &attention, float (&score)[I][J],
                              const struct forward_place &place, int query, int key)
{
    UNROLLED(i, I) {
        UNROLLED(j, J)
            score[i][j] =
                key + plain_x() + 8 * j > place.position + query + 4 * i ||
                        key + plain_x() + 8 * j <
                            attention_begin(attention, place.sample, query + 4 * i, place.position)
                    ? -INFINITY
                    : score[i][j] * attention.scale;
    }
}

/* Turns scores into weights relative to the new maximum of their row, and rescales what was summed
 * before. */
template <int D, int I, int J>
DEVICE void plain_weights_make(float (&score)[I][J], float (&largest)[I], float (&sum)[I],
                               float (&result)[I][D / 8])
{
    UNROLLED(i, I) {
        float after = largest[i], added = 0.0f;
        UNROLLED(j, J)
            after = fmaxf(after, score[i][j]);
        after = cuda_lanes_max<8>(after);
        const float zero = after == -INFINITY
                               ? 0.0f
                               : after; /* a row may have seen no key of its document so far */
        const float shrink = expf(largest[i] - zero);
        UNROLLED(j, J) {
            score[i][j] = expf(score[i][j] - zero);
            added += score[i][j];
        }
        largest[i] = after;
        sum[i] = fmaf(sum[i], shrink, added);
        UNROLLED(n, D / 8)
            result[i][n] *= shrink;
    }
}

/* Each of the warp's rows has J groups of keys: of row y + 4 (x / 2), if there is one, a lane draws
 * the first half of the groups or the second. */
template <int I, int J>
DEVICE void plain_weights_drop(const struct cuda_attention &attention,
                               const struct dropout_mask &mask, float (&weight)[I][J], int query,
                               int key)
{
    constexpr int half = J / 2;
    const int x = plain_x(), y = plain_y();
    const int64_t group =
        attention_mask_group(attention, query + y + x / 2 * 4, key) + x % 2 * half;
    uint32_t bits = dropout_kept(&mask, group);
    if (half > 1)
        bits |= dropout_kept(&mask, group + 1) << 8;
    UNROLLED(i, I) {
        UNROLLED(j, J) {
            const uint32_t kept =
                __shfl_sync(ALL_LANES, bits, y * 8 + i * 2 + j / half) >> (j % half * 8 + x);
            weight[i][j] = (kept & 1u) != 0 ? weight[i][j] : 0.0f;
        }
    }
}

template <int D>
__global__ void __launch_bounds__(PLAIN_THREADS)
    attention_forward_plain(const struct cuda_attention attention)
{
    constexpr int QUERIES = block_queries<D>, KEYS = tile_keys<D>, ROWS_I = lane_rows<D>,
                  KEYS_J = lane_keys<D>;
    DYN_SHARED(float, shared);
    const struct forward_place place = forward_place_of<QUERIES, KEYS>(attention);
    const int warp_row = cuda_warp() * 4 * ROWS_I,
              kv_head = place.head / (attention.heads / attention.kv_heads);
    float *q = shared, *other = q + QUERIES * plain_stride<D>;
    float *weights = other + KEYS * plain_stride<D> + warp_row * weight_stride<KEYS>,
          *own = q + warp_row * plain_stride<D>;
    const int first =
        place.position + place.query; /* position of the tile's first query among the keys */
    const int end = min(place.position + attention.time, first + QUERIES);
    float result[ROWS_I][D / 8], largest[ROWS_I], sum[ROWS_I];
    plain_clear(result);
    UNROLLED(i, ROWS_I) {
        largest[i] = -INFINITY;
        sum[i] = 0.0f;
    }
    struct dropout_mask mask;
    if (attention.threshold != 0)
        mask = attention_mask_make(attention, place.sample, place.head);
    plain_load<D, QUERIES>(q, attention, attention.q, place.sample, place.head, place.query,
                           attention.time);
    for (int key = place.start; key < end; key += KEYS) {
        const int row = key % attention.ring, row_end = row + end - key;
        plain_load<D, KEYS>(other, attention, attention.k, place.sample, kv_head, row, row_end);
        __syncthreads(); /* the keys have arrived, and before the first tile the queries */
        float score[ROWS_I][KEYS_J];
        plain_scores<D>(score, own, other);
        __syncthreads(); /* the keys are no longer read */
        plain_load<D, KEYS>(other, attention, attention.v, place.sample, kv_head, row, row_end);
        plain_scores_mask(attention, score, place, place.query + warp_row + plain_y(), key);
        plain_weights_make<D>(score, largest, sum, result);
        if (attention.threshold != 0)
            plain_weights_drop(attention, mask, score, place.query + warp_row, key);
        plain_weights_put(weights, score);
        __syncthreads(); /* the values have arrived, and the warp's weights are written */
        plain_add<D, ROWS_I, KEYS_J>(result, weights, other);
        __syncthreads(); /* neither is read any more */
    }
    const float scale = attention.threshold != 0 ? attention.kept_scale : 1.0f;
    const int64_t statistics =
        ((int64_t)place.sample * attention.heads + place.head) * attention.time;
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

extern "C" cudaError_t cuda_launch_attention_forward_plain(cudaStream_t stream,
                                                           const struct cuda_attention *attention)
{
    const auto instance = attention_by_size(attention->head_size, [](auto size) {
        return attention_instance{attention_forward_plain<size()>, plain_forward_bytes<size()>};
    });
    const bool small = attention->head_size <= CUDA_ATTENTION_HEAD_SIZE_SMALL;
    return attention_launch(stream, instance, small ? block_queries<32> : block_queries<256>,
                            attention->heads, PLAIN_THREADS, attention);
}
