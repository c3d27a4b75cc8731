/* attention_cached: appends new keys and values to the cache, and computes softmax attention over
 * the cache for a few rows.
 *
 * The cache is read once for each row and head, in parts.  A block takes one part; each group of L
 * lanes takes every n-th key, with its own running maximum.  L = 4, 8, 16, 32 for head sizes up to
 * 32, 64, 128, 256, and a lane has eight elements.  Shuffles combine the groups of a warp, shared
 * memory the warps of a block, and a second kernel the parts, through the workspace and in order.
 * Parts begin at multiples of their size, from that with the first key of the row's window on;
 * those beyond the row have nothing to do.  All arithmetic is fp32, on the keys and values as
 * stored.
 *
 * Many rows (prefill) use the kernels of the forward instead, after the same append.
 */
#include "backends/cuda/kernels/attention_place.h"

#define CACHED_WARPS 4
#define CACHED_THREADS (CACHED_WARPS * WARP_LANES)
#define KEYS_AT_ONCE 4  /* keys of a group of lanes whose loads are in flight together */
#define PARTIAL_EXTRA 2 /* maximum and sum, after the head_size elements of a part */

/* A thread copies eight elements of a row of keys or values, rounded if the cache has another
 * dtype. */
__global__ void __launch_bounds__(CACHED_THREADS)
    attention_append(const struct cuda_attention_cache cached)
{
    const struct cuda_attention &attention = cached.attention;
    const int size = attention.head_size, groups = (size + CUDA_GROUP - 1) / CUDA_GROUP;
    const int64_t per_row = 2 * (int64_t)attention.kv_heads * groups;
    const int64_t count = (int64_t)attention.samples * attention.time * per_row;
    const int64_t stride = (int64_t)gridDim.x * CACHED_THREADS;
    const int position = attention.scalars[SCALAR_POSITION].i;
    for (int64_t i = (int64_t)blockIdx.x * CACHED_THREADS + threadIdx.x; i < count; i += stride) {
        const int64_t row = i / per_row;
        const int part = (int)(i % per_row), column = part % groups * CUDA_GROUP;
        const int head = part / groups % attention.kv_heads, sample = (int)(row / attention.time);
        const int t = (int)(row % attention.time);
        const bool is_key = part / groups < attention.kv_heads;
        const struct cuda_attention_rows &from = is_key ? cached.new_k : cached.new_v;
        const struct cuda_attention_rows &to = is_key ? attention.k : attention.v;
        float value[CUDA_GROUP];
        cuda_read(from.of,
                  attention_span(attention, attention_row(from, sample, t, head, size), column),
                  value);
        const int64_t to_row =
            attention_row(to, sample, (position + t) % attention.ring, head, size);
        cuda_write(to.of, attention_span(attention, to_row, column), value);
    }
}

/* The sums of a group of lanes, a warp or a block, relative to the largest score. */
struct cached_sum {
    float largest, sum, result[CUDA_GROUP];
};

/* one += other, each relative to its own maximum.  Without keys a sum is (-inf, 0, zeros). */
DEVICE void cached_merge(struct cached_sum &one, const struct cached_sum &other)
{
    const float after = fmaxf(one.largest, other.largest);
    const float shrink_one = one.largest == after ? 1.0f : expf(one.largest - after);
    const float shrink_other = other.largest == after ? 1.0f : expf(other.largest - after);
    one.largest = after;
    one.sum = one.sum * shrink_one + other.sum * shrink_other;
    UNROLLED(k, CUDA_GROUP)
        one.result[k] = one.result[k] * shrink_one + other.result[k] * shrink_other;
}

/* Combines the groups of lanes of a warp.  The first group has the result; the others may differ in
 * the last bits. */
template <int LANES> DEVICE void cached_merge_warp(struct cached_sum &sum)
{
#pragma unroll
    for (int distance = LANES; distance < WARP_LANES; distance *= 2) {
        struct cached_sum other;
        other.largest = __shfl_xor_sync(ALL_LANES, sum.largest, distance);
        other.sum = __shfl_xor_sync(ALL_LANES, sum.sum, distance);
        UNROLLED(k, CUDA_GROUP)
            other.result[k] = __shfl_xor_sync(ALL_LANES, sum.result[k], distance);
        cached_merge(sum, other);
    }
}

/* Returns the scaled score of one key, in every lane of the group. */
template <int LANES>
DEVICE float cached_score(const float (&q)[CUDA_GROUP], const float (&k)[CUDA_GROUP], float scale)
{
    float dot = 0.0f;
    UNROLLED(e, CUDA_GROUP)
        dot = fmaf(q[e], k[e], dot);
    return cuda_lanes_sum<LANES>(dot) * scale;
}

/* Adds the keys first, first + step, ..., KEYS_AT_ONCE of them, that are below `end`; those from
 * `turn` on are at the cache's beginning again.  Every lane of the warp takes part. */
template <int LANES>
DEVICE void cached_step(const struct cuda_attention &attention, struct cached_sum &sum,
                        const float (&q)[CUDA_GROUP], int64_t k_row, int64_t v_row, int first,
                        int step, int end, int turn, int column)
{
    float k[KEYS_AT_ONCE][CUDA_GROUP], v[KEYS_AT_ONCE][CUDA_GROUP], score[KEYS_AT_ONCE],
        after = sum.largest;
    UNROLLED(i, KEYS_AT_ONCE) {
        const int key = first + i * step;
        UNROLLED(e, CUDA_GROUP)
            k[i][e] = v[i][e] = 0.0f;
        const int row = key - turn + (key < turn ? attention.ring : 0);
        if (key < end && column < attention.head_size) {
            cuda_read(attention.k.of,
                      attention_span(attention, k_row + row * attention.k.row, column), k[i]);
            cuda_read(attention.v.of,
                      attention_span(attention, v_row + row * attention.v.row, column), v[i]);
        }
    }
    UNROLLED(i, KEYS_AT_ONCE) {
        const float dot = cached_score<LANES>(q, k[i], attention.scale);
        score[i] = first + i * step < end ? dot : -INFINITY;
        after = fmaxf(after, score[i]);
    }
    if (first >= end)
        return;
    const float shrink = expf(sum.largest - after);
    sum.largest = after;
    sum.sum *= shrink;
    UNROLLED(e, CUDA_GROUP)
        sum.result[e] *= shrink;
    UNROLLED(i, KEYS_AT_ONCE) {
        const float p = expf(score[i] - after);
        sum.sum += p;
        UNROLLED(e, CUDA_GROUP)
            sum.result[e] = fmaf(p, v[i][e], sum.result[e]);
    }
}

/* The row, the head and the part of the cache that a block works on. */
struct cached_place_of {
    int sample, t, head, split;
    int first, end; /* keys of the part that the row sees; none if end <= first */
};

DEVICE struct cached_place_of cached_block(const struct cuda_attention_cache &cached)
{
    const struct cuda_attention &attention = cached.attention;
    const int item = (int)blockIdx.x / cached.splits, row = item / attention.heads;
    struct cached_place_of place;
    place.split = (int)blockIdx.x % cached.splits;
    place.head = item % attention.heads;
    place.t = row % attention.time;
    place.sample = row / attention.time;
    const int position = attention.scalars[SCALAR_POSITION].i,
              begin = attention_begin(attention, place.sample, place.t, position);
    const int first = (begin / cached.split_keys + place.split) * cached.split_keys;
    place.first = max(first, begin);
    place.end = min(position + place.t + 1, first + cached.split_keys);
    return place;
}

/* Writes the block's part of a row: to y if there is one part, else to the workspace. */
DEVICE void cached_finish(const struct cuda_attention_cache &cached,
                          const struct cached_place_of &place, const struct cached_sum &sum,
                          int column)
{
    const struct cuda_attention &attention = cached.attention;
    const int size = attention.head_size;
    if (column >= size)
        return;
    if (cached.splits > 1) {
        float *partial = cached.partial + (int64_t)blockIdx.x * (size + PARTIAL_EXTRA);
        UNROLLED(e, CUDA_GROUP) {
            if (column + e < size)
                partial[column + e] = sum.result[e];
        }
        if (column == 0) {
            partial[size] = sum.largest;
            partial[size + 1] = sum.sum;
        }
        return;
    }
    const int64_t y = attention_row(attention.y, place.sample, place.t, place.head, size);
    float value[CUDA_GROUP];
    UNROLLED(e, CUDA_GROUP)
        value[e] = sum.result[e] / sum.sum;
    cuda_write(attention.y.of, attention_span(attention, y, column), value);
}

template <int LANES>
__global__ void __launch_bounds__(CACHED_THREADS)
    attention_few_rows(const struct cuda_attention_cache cached)
{
    SHARED(struct cached_sum, sums, CACHED_WARPS * LANES);
    const struct cuda_attention &attention = cached.attention;
    const struct cached_place_of place = cached_block(cached);
    if (place.end <= place.first) /* the same for the whole block */
        return;
    const int size = attention.head_size,
              kv_head = place.head / (attention.heads / attention.kv_heads);
    const int lane = cuda_lane(), warp = cuda_warp();
    const int column = lane % LANES * CUDA_GROUP, step = CACHED_WARPS * WARP_LANES / LANES;
    float q[CUDA_GROUP] = {0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f};
    if (column < size)
        cuda_read(attention.q.of,
                  attention_span(
                      attention,
                      attention_row(attention.q, place.sample, place.t, place.head, size), column),
                  q);
    const int64_t k_row = attention_row(attention.k, place.sample, 0, kv_head, size);
    const int64_t v_row = attention_row(attention.v, place.sample, 0, kv_head, size);
    const int turn = (place.first / attention.ring + 1) * attention.ring;
    struct cached_sum sum = {-INFINITY, 0.0f, {0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f}};
    for (int first = place.first; first < place.end; first += KEYS_AT_ONCE * step) {
        const int own = first + (int)threadIdx.x / LANES;
        cached_step<LANES>(attention, sum, q, k_row, v_row, own, step, place.end, turn, column);
    }
    cached_merge_warp<LANES>(sum);
    if (lane < LANES)
        sums[warp * LANES + lane] = sum;
    __syncthreads();
    if (warp > 0 || lane >= LANES)
        return;
#pragma unroll
    for (int other = 1; other < CACHED_WARPS; other++)
        cached_merge(sum, sums[other * LANES + lane]);
    cached_finish(cached, place, sum, column);
}

/* Combines the parts of one row and head into y, in order; a thread computes one element. */
__global__ void __launch_bounds__(CUDA_ATTENTION_HEAD_SIZE_MAX)
    attention_join_parts(const struct cuda_attention_cache cached)
{
    const struct cuda_attention &attention = cached.attention;
    const int size = attention.head_size, item = (int)blockIdx.x, row = item / attention.heads,
              d = (int)threadIdx.x;
    const int t = row % attention.time, sample = row / attention.time;
    const int position = attention.scalars[SCALAR_POSITION].i, end = position + t + 1;
    /* The parts that were written. */
    const int parts = (end + cached.split_keys - 1) / cached.split_keys -
                      attention_begin(attention, sample, t, position) / cached.split_keys;
    const float *partial = cached.partial + (int64_t)item * cached.splits * (size + PARTIAL_EXTRA);
    if (d >= size)
        return;
    float largest = -INFINITY, sum = 0.0f, result = 0.0f;
    for (int part = 0; part < parts; part++)
        largest = fmaxf(largest, partial[part * (size + PARTIAL_EXTRA) + size]);
    for (int part = 0; part < parts; part++) {
        const float *from = partial + part * (size + PARTIAL_EXTRA);
        const float shrink = expf(from[size] - largest);
        sum = fmaf(from[size + 1], shrink, sum);
        result = fmaf(from[d], shrink, result);
    }
    cuda_write_one(attention.y.of,
                   attention_row(attention.y, sample, t, item % attention.heads, size) + d,
                   result / sum);
}

/* ---- host side ---- */

extern "C" cudaError_t cuda_launch_attention_append(cudaStream_t stream,
                                                    const struct cuda_attention_cache *cached)
{
    const struct cuda_attention *attention = &cached->attention;
    const int64_t groups = (attention->head_size + CUDA_GROUP - 1) / CUDA_GROUP;
    const int64_t count =
        2 * (int64_t)attention->samples * attention->time * attention->kv_heads * groups;
    const int64_t blocks = (count + CACHED_THREADS - 1) / CACHED_THREADS;
    return LAUNCH(attention_append, dim3((unsigned)(blocks < INT32_MAX ? blocks : INT32_MAX)),
                  dim3(CACHED_THREADS), 0, stream, *cached);
}

extern "C" cudaError_t cuda_launch_attention_few_rows(cudaStream_t stream,
                                                      const struct cuda_attention_cache *cached)
{
    const struct cuda_attention *attention = &cached->attention;
    const unsigned items = (unsigned)(attention->samples * attention->time * attention->heads);
    void (*const kernel)(const struct cuda_attention_cache) =
        attention->head_size <= 32    ? attention_few_rows<4>
        : attention->head_size <= 64  ? attention_few_rows<8>
        : attention->head_size <= 128 ? attention_few_rows<16>
                                      : attention_few_rows<32>;
    const cudaError_t error = LAUNCH(kernel, dim3(items * (unsigned)cached->splits),
                                     dim3(CACHED_THREADS), 0, stream, *cached);
    if (error != cudaSuccess || cached->splits == 1)
        return error;
    const bool small = attention->head_size <= CUDA_ATTENTION_HEAD_SIZE_SMALL;
    const unsigned threads = small ? CUDA_ATTENTION_HEAD_SIZE_SMALL : CUDA_ATTENTION_HEAD_SIZE_MAX;
    return LAUNCH(attention_join_parts, dim3(items), dim3(threads), 0, stream, *cached);
}
