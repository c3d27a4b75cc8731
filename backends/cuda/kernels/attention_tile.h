/* The common parts of the tensor-core attention kernels: tiles in shared memory, and products of
 * fragments.
 *
 * A block has four warps and owns a tile of 64 rows, 16 for each warp (or eight warps and 128 rows
 * in one launch shape of the forward); it walks over tiles of the other operands.  A tile is [rows,
 * D] with D the compiled head size; columns beyond the real head size, and rows beyond the end, are
 * zeros, so that products need no tails.  A row is 16 bytes longer than its elements: an odd number
 * of 16-byte chunks, so that the eight rows of an ldmatrix lie in different banks, for every D
 * here.
 *
 * Fragments: with g = lane / 4 and t = lane % 4, element e of accumulator n is in column 8 n + 2 t
 * + e % 2 and in row g
 * + 8 (e / 2) of the warp's 16.  Weights go from accumulators to a fragment without leaving the
 * registers.
 */
#ifndef GPT_TRAIN_CUDA_KERNELS_ATTENTION_TILE_H
#define GPT_TRAIN_CUDA_KERNELS_ATTENTION_TILE_H

#include "backends/cuda/kernels/attention_place.h"

#define TILE_ROWS CUDA_ATTENTION_TILE
#define TILE_WARPS 4
#define TILE_THREADS (TILE_WARPS * WARP_LANES)
#define TILE_WARP_ROWS 16
#define LOG2_E 1.4426950408889634f
/* 16-byte copies of a thread that are in flight together: all of a tile, or two where they pass
 * through registers. */
#if CUDA_HAS_SM80
#define UNROLL_COPIES _Pragma("unroll")
#else
#define UNROLL_COPIES _Pragma("unroll 2")
#endif

/* The products of a kernel: fp16 before sm_80; 16 bits with fp32 sums; fp16 with fp16 sums of 32
 * products, which fp32 sums add up.  numerics.md has the errors of the latter. */
enum { MMA_K8, MMA_K16, MMA_HALF_SUMS };

/* True when a kernel of this dtype and product has a body in this compilation: all but MMA_K8 need
 * sm_80, and before it there is only fp16.  Under emulation all kernels have a body, and the
 * configured device decides.  A kernel without a body that is launched all the same, from PTX of
 * another kind of card, traps instead of leaving its results unwritten. */
#ifdef GT_CUDA_EMULATED
template <typename T, int MMA> constexpr bool tile_compiled = true;
#else
template <typename T, int MMA>
constexpr bool tile_compiled = (MMA != MMA_K8) == (CUDA_HAS_SM80 != 0);
#endif

/* Elements from one row of a tile to the next. */
template <int D> constexpr int tile_stride = D + 8;
template <int D, int ROWS> constexpr int tile_elements = ROWS *tile_stride<D>;
/* Up to this head size the fragments of the block's own rows stay in registers; above it they are
 * read again for each tile. */
template <int D> constexpr bool tile_held = D <= 64;
template <int D> constexpr int tile_held_fragments = tile_held<D> ? D / 16 : 1; /* 1: not held */

/* The first of the warp's own rows. */
DEVICE int tile_warp_row(void)
{
    return cuda_warp() * TILE_WARP_ROWS;
}

/* Returns where the rows of one head of one sample begin. */
template <typename T>
DEVICE T *tile_rows(const struct cuda_attention_rows &rows, int sample, int head, int head_size)
{
    return (T *)rows.of.memory + rows.first + sample * rows.sample + (int64_t)head * head_size;
}

/* The source of a tile: the rows of `from`, `row` elements apart.  Rows from number `rows` on
 * (which may be negative), and columns from `head_size` on, become zeros. */
template <typename T> struct tile_source {
    const T *from;
    int64_t row;
    int rows;
    int head_size, unit;
};

/* Returns the source whose first row is row `first` of the head; rows from `end` on do not exist.
 */
template <typename T>
DEVICE struct tile_source<T> tile_source_of(const struct cuda_attention &attention,
                                            const struct cuda_attention_rows &rows, int sample,
                                            int head, int first, int end) {
    const T *from = tile_rows<T>(rows, sample, head, attention.head_size) + first * rows.row;
    return {from, rows.row, end - first, attention.head_size, attention.unit};
}

/* Goes on by `rows` rows, of which the first is `distance` rows further in memory. */
template <typename T>
DEVICE void tile_advance(struct tile_source<T> *source, int rows, int distance)
{
    source->from += distance * source->row;
    source->rows -= rows;
}

template <typename T> DEVICE void tile_advance(struct tile_source<T> *source, int rows)
{
    tile_advance(source, rows, rows);
}

/* Starts filling the tile, with all threads of a block: by copies of 16 or 4 bytes, or by elements,
 * which are stored at once.  In each case the tile is complete after cp_async_wait and a barrier,
 * and must be free before the call.  Where the chunks of a row divide the threads, a thread's
 * column is always the same, and its rows have a fixed distance. */
template <typename T, int D, int ROWS, int THREADS = TILE_THREADS>
DEVICE void tile_load(T *tile, const struct tile_source<T> &source)
{
    constexpr int chunks = D / 8, pass = THREADS / chunks;
    if (THREADS % chunks == 0 && source.unit == 8) {
        const int first = (int)threadIdx.x / chunks, column = (int)threadIdx.x % chunks * 8;
        const int rows = column < source.head_size ? source.rows - first : 0;
        const T *from = source.from + first * source.row + column;
        T *to = tile + first * tile_stride<D> + column;
        UNROLL_COPIES
        for (int row = 0; row < ROWS; row += pass) {
            if (ROWS % pass == 0 || first + row < ROWS)
                cp_async_16(to + row * tile_stride<D>, from, row < rows);
            from += pass * source.row;
        }
        return;
    }
    if (source.unit == 8) {
        UNROLL_COPIES
        for (int i = (int)threadIdx.x; i < ROWS * chunks; i += THREADS) {
            const int row = i / chunks, column = i % chunks * 8;
            cp_async_16(tile + row * tile_stride<D> + column,
                        source.from + row * source.row + column,
                        row < source.rows && column < source.head_size);
        }
        return;
    }
#pragma unroll 1
    for (int i = (int)threadIdx.x; i < ROWS * D / 2; i += THREADS) {
        const int row = i / (D / 2), column = i % (D / 2) * 2;
        const bool fetch = row < source.rows && column < source.head_size;
        const T *from = source.from + row * source.row + column;
        T *to = tile + row * tile_stride<D> + column;
        if (source.unit == 2) {
            cp_async_4(to, from, fetch);
        } else {
            to[0] = fetch ? from[0] : rounded<T>(0.0f);
            to[1] = fetch && column + 1 < source.head_size ? from[1] : rounded<T>(0.0f);
        }
    }
}

/* Loads fragment k of the warp's 16 rows from `rows` on: columns 16 k .. 16 k + 15. */
template <typename T, int D> DEVICE void tile_fragment(uint32_t (&a)[4], const T *rows, int k)
{
    const int lane = cuda_lane();
    ldmatrix_x4(a, rows + lane % 16 * tile_stride<D> + k * 16 + lane / 16 * 8);
}

/* Loads all fragments of the warp's rows, if they stay in registers. */
template <typename T, int D, int HELD>
DEVICE void tile_hold(uint32_t (&held)[HELD][4], const T *rows)
{
    if constexpr (HELD > 1) {
        UNROLLED(k, D / 16)
            tile_fragment<T, D>(held[k], rows, k);
    }
}

/* d[16,8] += a[16,16] b[16,8]. */
template <typename T, int MMA>
DEVICE void tile_multiply(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    if constexpr (MMA == MMA_K16) {
        mma_m16n8k16<T>(d, a, b0, b1);
    } else {
        const uint32_t low[2] = {a[0], a[1]}, high[2] = {a[2], a[3]};
        mma_m16n8k8_f16(d, low, b0);
        mma_m16n8k8_f16(d, high, b1);
    }
}

/* d0[16,8], d1[16,8] += a[16,32] b[32,16] with fp16 sums; b(fragment, k) loads fragment k of b.
 * BEGIN: = instead. */
template <bool BEGIN, typename Load>
DEVICE void tile_multiply_half(float (&d0)[4], float (&d1)[4], const uint32_t (&a)[2][4], Load b)
{
    uint32_t part[2][2] = {};
    UNROLLED(k, 2) {
        uint32_t fragment[4];
        b(fragment, k);
        mma_m16n8k16_half(part[0], a[k], fragment[0], fragment[1]);
        mma_m16n8k16_half(part[1], a[k], fragment[2], fragment[3]);
    }
    half_sums_add<BEGIN>(d0, part[0]);
    half_sums_add<BEGIN>(d1, part[1]);
}

template <int N> DEVICE void tile_clear(float (&d)[N][4])
{
    UNROLLED(n, N) {
        UNROLLED(e, 4)
            d[n][e] = 0.0f;
    }
}

/* d[16, 8 N] = own[16, D] other[8 N, D]': the warp's rows times the rows of a tile. */
template <typename T, int D, int N, int MMA, int HELD>
DEVICE void tile_scores(float (&d)[N][4], const uint32_t (&held)[HELD][4], const T *own,
                        const T *other)
{
    const int lane = cuda_lane();
    const T *from = other + (lane / 16 * 8 + lane % 8) * tile_stride<D> + lane / 8 % 2 * 8;
    if constexpr (MMA == MMA_HALF_SUMS) {
        if (HELD == 1)
            tile_clear(d);
#pragma unroll(HELD > 1 ? D / 32 : 1)
        for (int k = 0; k < D / 32; k++) {
            uint32_t a[2][4];
            UNROLLED(i, 2) {
                if constexpr (HELD > 1)
                    memcpy(a[i], held[2 * k + i], sizeof a[i]);
                else
                    tile_fragment<T, D>(a[i], own, 2 * k + i);
            }
#pragma unroll
            for (int n = 0; n < N; n += 2) {
                const auto load = [&](uint32_t(&b)[4], int i) {
                    ldmatrix_x4(b, from + n * 8 * tile_stride<D> + (2 * k + i) * 16);
                };
                if (HELD > 1 && k == 0)
                    tile_multiply_half<true>(d[n], d[n + 1], a, load);
                else
                    tile_multiply_half<false>(d[n], d[n + 1], a, load);
            }
        }
        return;
    }
    tile_clear(d);
#pragma unroll(HELD > 1 ? D / 16 : 2)
    for (int k = 0; k < D / 16; k++) {
        uint32_t a[4];
        if constexpr (HELD > 1)
            memcpy(a, held[k], sizeof a);
        else
            tile_fragment<T, D>(a, own, k);
#pragma unroll
        for (int n = 0; n < N; n += 2) {
            uint32_t b[4];
            ldmatrix_x4(b, from + n * 8 * tile_stride<D> + k * 16);
            tile_multiply<T, MMA>(d[n], a, b[0], b[1]);
            tile_multiply<T, MMA>(d[n + 1], a, b[2], b[3]);
        }
    }
}

/* Rounds weights k and k + 1 to a fragment. */
template <typename T, int N>
DEVICE void weights_pack(uint32_t (&a)[4], const float (&weight)[N][4], int k)
{
    UNROLLED(i, 4)
        a[i] = pack_pair<T>(weight[k + i / 2][i % 2 * 2], weight[k + i / 2][i % 2 * 2 + 1]);
}

/* d[16, D] += weights[16, 8 N] other[8 N, D]; the weights are rounded to T. */
template <typename T, int D, int N, int MMA>
DEVICE void tile_add(float (&d)[D / 8][4], const float (&weight)[N][4], const T *other)
{
    const int lane = cuda_lane();
    const T *from = other + lane % 16 * tile_stride<D> + lane / 16 * 8;
    if constexpr (MMA == MMA_HALF_SUMS) {
#pragma unroll
        for (int k = 0; k < N; k += 4) {
            uint32_t a[2][4];
            weights_pack<T>(a[0], weight, k);
            weights_pack<T>(a[1], weight, k + 2);
#pragma unroll
            for (int n = 0; n < D / 8; n += 2)
                tile_multiply_half<false>(d[n], d[n + 1], a, [&](uint32_t(&b)[4], int i) {
                    ldmatrix_x4_trans(b, from + (k + 2 * i) * 8 * tile_stride<D> + n * 8);
                });
        }
        return;
    }
#pragma unroll
    for (int k = 0; k < N; k += 2) {
        uint32_t a[4];
        weights_pack<T>(a, weight, k);
#pragma unroll
        for (int n = 0; n < D / 8; n += 2) {
            uint32_t b[4];
            ldmatrix_x4_trans(b, from + k * 8 * tile_stride<D> + n * 8);
            tile_multiply<T, MMA>(d[n], a, b[0], b[1]);
            tile_multiply<T, MMA>(d[n + 1], a, b[2], b[3]);
        }
    }
}

/* Writes the warp's rows, times factor[0] (rows g) and factor[1] (rows g + 8), to the warp's rows
 * of a tile that no other warp reads, and from there to `to`, 16 bytes at a time.  Rows from `end`
 * on are not written.  `first` is the warp's first row in `to`. */
template <typename T, int D>
DEVICE void tile_store(T *rows, const float (&d)[D / 8][4], const float (&factor)[2], T *to,
                       int64_t row, int first, int end, int head_size, int unit)
{
    constexpr int chunks = D / 8;
    const int lane = cuda_lane(), g = lane / 4, t = lane % 4;
    UNROLLED(n, D / 8) {
        UNROLLED(r, 2) {
            const uint32_t pair =
                pack_pair<T>(d[n][2 * r] * factor[r], d[n][2 * r + 1] * factor[r]);
            void *at = rows + (g + 8 * r) * tile_stride<D> + n * 8 + 2 * t;
            memcpy(__builtin_assume_aligned(at, 4), &pair, sizeof pair);
        }
    }
    __syncwarp();
    if (unit == 8) {
#pragma unroll
        for (int i = lane; i < TILE_WARP_ROWS * chunks; i += WARP_LANES) {
            const int at = i / chunks, column = i % chunks * 8;
            if (first + at < end && column < head_size)
                store_16_bytes(to + (first + at) * row + column,
                               load_16_bytes(rows + at * tile_stride<D> + column));
        }
        return;
    }
#pragma unroll 1
    for (int i = lane; i < TILE_WARP_ROWS * D; i += WARP_LANES) {
        const int at = i / D, column = i % D;
        if (first + at < end && column < head_size)
            to[(first + at) * row + column] = rows[at * tile_stride<D> + column];
    }
}

/* ---- dropout: 8 elements share a Philox block, of which a lane would use two; so one lane draws
 * each block and passes on the kept elements as bits.  ---- */

/* Rows are queries from `query` (the warp's first), columns are 8 N keys from `key`.  Byte 2 m + r
 * of lane 4 g + t has the bits of row g + 8 r and the keys of accumulator 4 m + t. */
template <int N>
DEVICE uint32_t tile_kept_by_query(const struct cuda_attention &attention,
                                   const struct dropout_mask &mask, int query, int key)
{
    const int lane = cuda_lane(), g = lane / 4, t = lane % 4;
    uint32_t bits = 0;
    UNROLLED(m, N / 4) {
        UNROLLED(r, 2) {
            const int64_t group =
                attention_mask_group(attention, query + g + 8 * r, key + (4 * m + t) * 8);
            bits |= dropout_kept(&mask, group) << 8 * (2 * m + r);
        }
    }
    return bits;
}

/* Returns the bits of lane `t` of the quad. */
DEVICE uint32_t tile_kept_of(uint32_t bits, int t)
{
    return __shfl_sync(ALL_LANES, bits, cuda_lane() / 4 * 4 + t);
}

/* Sets bit e of the result when element e of accumulator 4 m + t is kept.  `known` is from lane t.
 */
DEVICE uint32_t tile_kept_query(uint32_t known, int m)
{
    const uint32_t word = known >> 16 * m >> cuda_lane() % 4 * 2;
    return (word & 3u) | (word >> 8 & 3u) << 2;
}

/* Rows are keys from `key` (the warp's first), columns are 32 queries from `query`.  Byte r of lane
 * 4 c + t has the bits of keys 8 r .. 8 r + 7 of the warp and the query of column 8 (c % 4) + 2 t +
 * c / 4. */
DEVICE uint32_t tile_kept_by_key(const struct cuda_attention &attention,
                                 const struct dropout_mask &mask, int query, int key)
{
    const int lane = cuda_lane(), c = lane / 4, t = lane % 4;
    const int64_t group = attention_mask_group(attention, query + c % 4 * 8 + 2 * t + c / 4, key);
    return dropout_kept(&mask, group) | dropout_kept(&mask, group + 1) << 8;
}

/* Sets bit e of the result when element e of accumulator n is kept. */
DEVICE uint32_t tile_kept_key(uint32_t bits, int n)
{
    const int lane = cuda_lane(), g = lane / 4, t = lane % 4;
    const uint32_t even = __shfl_sync(ALL_LANES, bits, n * 4 + t) >> g;
    const uint32_t odd = __shfl_sync(ALL_LANES, bits, (n + 4) * 4 + t) >> g;
    return (even & 1u) | (odd & 1u) << 1 | (even >> 8 & 1u) << 2 | (odd >> 8 & 1u) << 3;
}

#endif
