/* attention_forward on tensor cores, for bf16 and fp16: online softmax over tiles of 64 keys (Dao
 * 2023, algorithm 1). A block has 64 queries of one head, 16 for each of four warps; or 128 with
 * eight warps, where tuning found that to be faster: keys and values are then fetched half as
 * often.  The bits are the same either way: a tile of keys that comes after all queries of a warp
 * adds zeros.
 *
 * While scores are computed from a tile of keys, its values are in flight; while values are added
 * up, the next keys are.  Scores, maxima and sums are fp32; with half_sums the sums of 32 products
 * are fp16, and fp32 sums add these up.  Weights are relative to the running maximum when they are
 * rounded to 16 bits, and dropout's scale is applied with the sum, at the end, so that they are at
 * most 1.  Tiles beyond the diagonal are never touched.  Queries may begin at a position, for
 * prefilling a key-value cache.  The last blocks of a head, which have the most work, start first;
 * no block depends on another one's result.
 *
 * Shared memory: 3 tiles, (D + 8) 384 bytes: 15, 27, 39, 51, 99 KiB for D = 32, 64, 96, 128, 256.
 * On a multiprocessor of sm_86 that leaves room for 4 blocks (limited by registers), 3, 2, 1 and 1:
 * 99 KiB are all that a block may have on sm_86, 89 and 120.  A card of sm_75 has 64, and computes
 * such heads in attention_plain_forward.cu.  Eight warps take a third more: 36 and 68 KiB for D =
 * 64 and 128, with room for 2 blocks and 1.
 */
#include "backends/cuda/kernels/attention_tile.h"

#define KEY_TILES (TILE_ROWS / 8) /* accumulators for the scores of 64 keys */

template <int D, int WARPS>
constexpr size_t forward_shared_bytes = (tile_elements<D, WARPS * TILE_WARP_ROWS> +
                                         2 * tile_elements<D, TILE_ROWS>)*sizeof(uint16_t);
/* Head sizes that eight warps are compiled for: GPT-2's and the largest; none before sm_80, and
 * none with fp16 sums, which take more registers. */
template <int D, int MMA>
constexpr bool forward_has_eight = MMA == MMA_K16 && (D == 64 || D == 128);
/* Fragments of a warp's queries that stay in registers: with eight warps there is no room for them.
 */
template <int D, int WARPS> constexpr int forward_held = WARPS == 8 ? 1 : tile_held_fragments<D>;
/* Blocks of a multiprocessor that registers must leave room for: with eight warps as many as shared
 * memory allows; 0: the compiler decides. */
template <int D, int WARPS> constexpr int forward_blocks_min = WARPS == 8 && D == 64 ? 2 : 0;

/* Sets the scores of keys behind a query to minus infinity.  `row` is the position of the lane's
 * first query among the keys, `key` the first key.  Selections instead of branches: see
 * attention_place.h. */
DEVICE void scores_hide_later(float (&score)[KEY_TILES][4], int row, int key)
{
    const int last = row - key - 2 * (cuda_lane() % 4); /* counted from the lane's first key */
    UNROLLED(n, KEY_TILES) {
        UNROLLED(e, 4)
            score[n][e] = n * 8 + e % 2 > last + e / 2 * 8 ? -INFINITY : score[n][e];
    }
}

/* The same for the keys before the document or the window of a query.  `begin`: of the lane's two.
 */
DEVICE void scores_hide_earlier(float (&score)[KEY_TILES][4], const int (&begin)[2], int key)
{
    UNROLLED(r, 2) {
        const int first = begin[r] - key - 2 * (cuda_lane() % 4);
        UNROLLED(n, KEY_TILES) {
            UNROLLED(e, 2)
                score[n][2 * r + e] = n * 8 + e < first ? -INFINITY : score[n][2 * r + e];
        }
    }
}

/* Turns scores into weights relative to the new maximum of their row, and rescales what was summed
 * before.  `scale` is log2(e) times that of the scores; `largest` is of unscaled scores, and finite
 * from the first tile with keys of the row's document on. */
template <int D>
DEVICE void weights_make(float (&score)[KEY_TILES][4], float (&largest)[2], float (&sum)[2],
                         float (&result)[D / 8][4], float scale)
{
    UNROLLED(r, 2) {
        float after = largest[r];
        UNROLLED(n, KEY_TILES)
            after = fmaxf(after, fmaxf(score[n][2 * r], score[n][2 * r + 1]));
        after = cuda_lanes_max<4>(after);
        const float base = after == -INFINITY ? 0.0f : after;
        const float shrink = fast_exp2((largest[r] - base) * scale), zero = base * scale;
        float added = 0.0f;
        UNROLLED(n, KEY_TILES) {
#pragma unroll
            for (int e = 2 * r; e < 2 * r + 2; e++) {
                score[n][e] = fast_exp2(fmaf(score[n][e], scale, -zero));
                added += score[n][e];
            }
        }
        largest[r] = after;
        sum[r] = fmaf(sum[r], shrink, added);
        UNROLLED(n, D / 8) {
            result[n][2 * r] *= shrink;
            result[n][2 * r + 1] *= shrink;
        }
    }
}

DEVICE void weights_drop(float (&weight)[KEY_TILES][4], uint32_t bits)
{
    UNROLLED(t, 4) {
        const uint32_t known = tile_kept_of(bits, t);
        UNROLLED(m, KEY_TILES / 4) {
            const uint32_t kept = tile_kept_query(known, m);
            UNROLLED(e, 4)
                weight[4 * m + t][e] = (kept >> e & 1u) != 0 ? weight[4 * m + t][e] : 0.0f;
        }
    }
}

/* Writes the log-sum-exp of the lane's rows, by the first lane of each quad. */
DEVICE void lse_write(const struct cuda_attention &attention, const struct forward_place &place,
                      const float (&largest)[2], const float (&sum)[2])
{
    const int lane = cuda_lane(), row = place.query + tile_warp_row() + lane / 4;
    float *lse =
        attention.lse + ((int64_t)place.sample * attention.heads + place.head) * attention.time;
    UNROLLED(r, 2) {
        if (lane % 4 == 0 && row + 8 * r < attention.time)
            lse[row + 8 * r] = fmaf(largest[r], attention.scale, logf(sum[r]));
    }
}

template <typename T, int D, int MMA, int WARPS>
__global__ void __launch_bounds__(WARPS *WARP_LANES, forward_blocks_min<D, WARPS>)
    attention_forward_tiles(const struct cuda_attention attention)
{
    if constexpr (tile_compiled<T, MMA>) {
        DYN_SHARED(T, shared);
        constexpr int queries = WARPS * TILE_WARP_ROWS, threads = WARPS * WARP_LANES;
        T *q = shared, *k = q + tile_elements<D, queries>, *v = k + tile_elements<D, TILE_ROWS>;
        const struct forward_place place = forward_place_of<queries, TILE_ROWS>(attention);
        const int size = attention.head_size,
                  kv_head = place.head / (attention.heads / attention.kv_heads);
        const int first =
            place.position + place.query; /* position of the tile's first query among the keys */
        const int end = min(place.position + attention.time, first + queries);
        const int warp_row = tile_warp_row(), row = first + warp_row + cuda_lane() / 4;
        /* What queries see begins in order: from this key on, none of the block's begins later. */
        const int last_begin =
            attention_begin(attention, place.sample, min(place.query + queries, attention.time) - 1,
                            place.position);
        int begin[2]; /* of the lane's queries */
        UNROLLED(r, 2)
            begin[r] =
                attention_begin(attention, place.sample,
                                place.query + warp_row + cuda_lane() / 4 + 8 * r, place.position);
        /* The rows of a cache begin anew at the key `turn`. */
        const int start = place.start % attention.ring, start_end = start + end - place.start;
        int turn = place.start - start + attention.ring;
        struct tile_source<T> keys =
            tile_source_of<T>(attention, attention.k, place.sample, kv_head, start, start_end);
        struct tile_source<T> values =
            tile_source_of<T>(attention, attention.v, place.sample, kv_head, start, start_end);
        tile_load<T, D, queries, threads>(q, tile_source_of<T>(attention, attention.q, place.sample,
                                                               place.head, place.query,
                                                               attention.time));
        tile_load<T, D, TILE_ROWS, threads>(k, keys);
        cp_async_commit();
        uint32_t held[forward_held<D, WARPS>][4];
        float result[D / 8][4], largest[2] = {-INFINITY, -INFINITY}, sum[2] = {0.0f, 0.0f};
        tile_clear(result);
        struct dropout_mask mask;
        if (attention.threshold != 0)
            mask = attention_mask_make(attention, place.sample, place.head);
        for (int key = place.start; key < end; key += TILE_ROWS) {
            cp_async_wait<0>();
            __syncthreads(); /* the keys have arrived, and the previous tile's values are no longer
                                read */
            tile_load<T, D, TILE_ROWS, threads>(v, values);
            const int back = key + TILE_ROWS == turn ? attention.ring : 0;
            turn += back;
            tile_advance(&values, TILE_ROWS, TILE_ROWS - back);
            cp_async_commit();
            if (key == place.start)
                tile_hold<T, D>(held, q + warp_row * tile_stride<D>);
            float score[KEY_TILES][4];
            tile_scores<T, D, KEY_TILES, MMA>(score, held, q + warp_row * tile_stride<D>, k);
            cp_async_wait<0>();
            __syncthreads(); /* the values have arrived, and the keys are no longer read */
            tile_advance(&keys, TILE_ROWS, TILE_ROWS - back);
            if (keys.rows > 0) {
                tile_load<T, D, TILE_ROWS, threads>(k, keys);
                cp_async_commit();
            }
            if (key + TILE_ROWS - 1 > first)
                scores_hide_later(score, row, key);
            if (key < last_begin)
                scores_hide_earlier(score, begin, key);
            weights_make<D>(score, largest, sum, result, attention.scale * LOG2_E);
            if (attention.threshold != 0)
                weights_drop(score, tile_kept_by_query<KEY_TILES>(attention, mask,
                                                                  place.query + warp_row, key));
            tile_add<T, D, KEY_TILES, MMA>(result, score, v);
        }
        sum[0] = cuda_lanes_sum<4>(sum[0]);
        sum[1] = cuda_lanes_sum<4>(sum[1]);
        if (attention.lse != NULL)
            lse_write(attention, place, largest, sum);
        const float scale = attention.threshold != 0 ? attention.kept_scale : 1.0f;
        const float factor[2] = {scale / sum[0], scale / sum[1]};
        tile_store<T, D>(q + warp_row * tile_stride<D>, result, factor,
                         tile_rows<T>(attention.y, place.sample, place.head, size), attention.y.row,
                         place.query + warp_row, attention.time, size, attention.unit);
    } else {
        __trap();
    }
}

/* ---- host side ---- */

template <typename T, int MMA>
static struct attention_instance forward_instance_of(int32_t head_size, int32_t warps)
{
    return attention_by_size(head_size, [&](auto size) -> attention_instance {
        if constexpr (forward_has_eight<size(), MMA>) {
            if (warps == 8)
                return {attention_forward_tiles<T, size(), MMA, 8>,
                        forward_shared_bytes<size(), 8>};
        }
        if constexpr (MMA == MMA_K16 || size() <= CUDA_ATTENTION_HEAD_SIZE_SMALL)
            return {attention_forward_tiles<T, size(), MMA, TILE_WARPS>,
                    forward_shared_bytes<size(), TILE_WARPS>};
        return {NULL, 0}; /* the host side asks for none */
    });
}

extern "C" size_t cuda_attention_forward_shared_bytes(int32_t head_size)
{
    return attention_by_size(head_size,
                             [](auto size) { return forward_shared_bytes<size(), TILE_WARPS>; });
}

extern "C" size_t cuda_attention_forward_eight_bytes(int32_t head_size)
{
    const int32_t size = (head_size + 31) / 32 * 32;
    return size == 64    ? forward_shared_bytes<64, 8>
           : size == 128 ? forward_shared_bytes<128, 8>
                         : 0;
}

extern "C" cudaError_t cuda_launch_attention_forward_tiles(cudaStream_t stream,
                                                           const struct cuda_attention *attention)
{
    const auto instance_of = attention->q.of.dtype == DTYPE_BF16
                                 ? forward_instance_of<__nv_bfloat16, MMA_K16>
                             : attention->half_sums  ? forward_instance_of<__half, MMA_HALF_SUMS>
                             : attention->tensor_k16 ? forward_instance_of<__half, MMA_K16>
                                                     : forward_instance_of<__half, MMA_K8>;
    return attention_launch(stream, instance_of(attention->head_size, attention->warps),
                            attention->warps * TILE_WARP_ROWS, attention->heads,
                            attention->warps * WARP_LANES, attention);
}
