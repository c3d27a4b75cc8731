/* The common parts of the fp32 attention kernels: tiles of floats in shared memory, and products by
 * fused multiply-adds.
 *
 * Operands of any dtype become fp32 when a tile is filled, and results are rounded once, when they
 * are stored.  A block has four warps.  With y = lane / 8 and x = lane % 8, a lane has rows y + 4 i
 * of its warp's, i < I; columns x + 8 j of scores; and of results columns 4 x + 32 c and the three
 * after.  A row of a tile is four floats longer than its elements and a row of weights eight: what
 * the lanes of a quarter-warp read or write together lies in different banks.
 *
 * Dropout: a Philox block serves eight keys of a query.  One lane draws each block and passes on
 * the kept elements as bits.
 */
#ifndef GPT_TRAIN_CUDA_KERNELS_ATTENTION_PLAIN_H
#define GPT_TRAIN_CUDA_KERNELS_ATTENTION_PLAIN_H

#include "backends/cuda/kernels/attention_place.h"

#define PLAIN_WARPS 4
#define PLAIN_THREADS (PLAIN_WARPS * WARP_LANES)

template <int D> constexpr int plain_stride = D + 4;
template <int COLUMNS> constexpr int weight_stride = COLUMNS + 8;

DEVICE int plain_x(void)
{
    return (int)threadIdx.x % 8;
}

DEVICE int plain_y(void)
{
    return cuda_lane() / 8;
}

/* Loads rows first .. first + ROWS - 1 of a head.  Rows from `end` on, and columns from the head
 * size on, become zeros.  The tile is complete after a barrier. */
template <int D, int ROWS, int THREADS = PLAIN_THREADS>
DEVICE void plain_load(float *tile, const struct cuda_attention &attention,
                       const struct cuda_attention_rows &rows, int sample, int head, int first,
                       int end)
{
    constexpr int groups = D / CUDA_GROUP;
    const int size = attention.head_size;
    for (int i = (int)threadIdx.x; i < ROWS * groups; i += THREADS) {
        const int row = i / groups, column = i % groups * CUDA_GROUP;
        float value[CUDA_GROUP] = {0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f};
        if (first + row < end && column < size)
            cuda_read(rows.of,
                      attention_span(attention,
                                     attention_row(rows, sample, first + row, head, size), column),
                      value);
        float *to = tile + row * plain_stride<D> + column;
        const float low[4] = {value[0], value[1], value[2], value[3]};
        const float high[4] = {value[4], value[5], value[6], value[7]};
        store_values<float>(to, low);
        store_values<float>(to + 4, high);
    }
}

/* d[i][j] = the sum over D of own[row i] other[column j].  `own` begins at the warp's first row,
 * `other` at the tile's. */
template <int D, int I, int J>
DEVICE void plain_scores(float (&d)[I][J], const float *own, const float *other)
{
    UNROLLED(i, I) {
        UNROLLED(j, J)
            d[i][j] = 0.0f;
    }
#pragma unroll 2
    for (int c = 0; c < D; c += 4) {
        float a[I][4], b[J][4];
        UNROLLED(i, I)
            load_values<float>(a[i], own + (plain_y() + 4 * i) * plain_stride<D> + c);
        UNROLLED(j, J)
            load_values<float>(b[j], other + (plain_x() + 8 * j) * plain_stride<D> + c);
        UNROLLED(e, 4) {
            UNROLLED(i, I) {
                UNROLLED(j, J)
                    d[i][j] = fmaf(a[i][e], b[j][e], d[i][j]);
            }
        }
    }
}

/* Writes the lane's weights to the warp's rows of shared memory. */
template <int I, int J> DEVICE void plain_weights_put(float *weights, const float (&d)[I][J])
{
    UNROLLED(i, I) {
        UNROLLED(j, J)
            weights[(plain_y() + 4 * i) * weight_stride<8 * J> + plain_x() + 8 * j] = d[i][j];
    }
}

/* sum[i] += weights[row i][8 J] other[8 J, D]. */
template <int D, int I, int J>
DEVICE void plain_add(float (&sum)[I][D / 8], const float *weights, const float *other)
{
#pragma unroll 1
    for (int j = 0; j < 8 * J; j += 4) {
        float a[I][4];
        UNROLLED(i, I)
            load_values<float>(a[i], weights + (plain_y() + 4 * i) * weight_stride<8 * J> + j);
        UNROLLED(e, 4) {
            UNROLLED(c, D / 32) {
                float b[4];
                load_values<float>(b, other + (j + e) * plain_stride<D> + 32 * c + 4 * plain_x());
                UNROLLED(i, I) {
                    UNROLLED(k, 4)
                        sum[i][4 * c + k] = fmaf(a[i][e], b[k], sum[i][4 * c + k]);
                }
            }
        }
    }
}

template <int I, int N> DEVICE void plain_clear(float (&sum)[I][N])
{
    UNROLLED(i, I) {
        UNROLLED(n, N)
            sum[i][n] = 0.0f;
    }
}

/* Stores the warp's 4 I rows of results, times a factor for each row, through the warp's rows of a
 * tile that no other warp reads.  `first` is the warp's first row; rows from `end` on are not
 * written. */
template <int D, int I>
DEVICE void plain_store(float *rows, const float (&sum)[I][D / 8], const float (&factor)[I],
                        const struct cuda_attention &attention,
                        const struct cuda_attention_rows &to, int sample, int head, int first,
                        int end)
{
    constexpr int groups = D / CUDA_GROUP;
    const int size = attention.head_size;
    UNROLLED(i, I) {
        UNROLLED(c, D / 32) {
            const float value[4] = {sum[i][4 * c] * factor[i], sum[i][4 * c + 1] * factor[i],
                                    sum[i][4 * c + 2] * factor[i], sum[i][4 * c + 3] * factor[i]};
            store_values<float>(
                rows + (plain_y() + 4 * i) * plain_stride<D> + 32 * c + 4 * plain_x(), value);
        }
    }
    __syncwarp();
    for (int i = cuda_lane(); i < 4 * I * groups; i += WARP_LANES) {
        const int row = i / groups, column = i % groups * CUDA_GROUP;
        if (first + row >= end || column >= size)
            continue;
        float low[4], high[4];
        load_values<float>(low, rows + row * plain_stride<D> + column);
        load_values<float>(high, rows + row * plain_stride<D> + column + 4);
        const float value[CUDA_GROUP] = {low[0],  low[1],  low[2],  low[3],
                                         high[0], high[1], high[2], high[3]};
        cuda_write(
            to.of,
            attention_span(attention, attention_row(to, sample, first + row, head, size), column),
            value);
    }
}

#endif
