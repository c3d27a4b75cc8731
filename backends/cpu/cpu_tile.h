/* Small matrix products on packed tiles, the inner loops of attention.
 *
 * Vectors are GNU vector types, as wide as the instruction set that this file is compiled for.  The compiler keeps a
 * block of the result in registers.  Widths are multiples of CPU_TILE_COLUMNS, heights of CPU_TILE_ROWS: the packing
 * functions pad tiles, and convert 16-bit rows to fp32.  One thread sums each element over k in increasing order.
 */
#ifndef GPT_TRAIN_CPU_CPU_TILE_H
#define GPT_TRAIN_CPU_CPU_TILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backends/cpu/cpu_half.h"

#if defined(__AVX512F__)
#define CPU_LANES 16
#define CPU_BLOCK_ROWS 8
#elif defined(__AVX2__)
#define CPU_LANES 8
#define CPU_BLOCK_ROWS 4
#else
#define CPU_LANES 4
#define CPU_BLOCK_ROWS 4
#endif
#define CPU_TILE_COLUMNS 16
#define CPU_TILE_ROWS 8

typedef float cpu_vector __attribute__((vector_size(CPU_LANES * 4), aligned(4), may_alias));

/* CPU_SQUARE: rows and columns that are transposed at once, if there are registers and shuffles for it. */
#if defined(__AVX512F__) && defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector)
#define CPU_SQUARE 16
#endif
#endif

/* c[m,n] = a[m,k] b[k,n], or += with `add`.  Element (i, l) of a is a[i * a_row + l * a_column]; b and c are row-major
 * with row lengths b_row and c_row.  m is rounded up to CPU_BLOCK_ROWS: those rows of a and c must exist. */
struct cpu_tile_product {
    const float *a, *b;
    float *c;
    ptrdiff_t a_row, a_column, b_row, c_row;
    int64_t m, n, k;
    bool add;
};

static inline __attribute__((always_inline)) void cpu_tile_block(const struct cpu_tile_product *p, int64_t i, int64_t j,
                                                                 int vectors)
{
    cpu_vector sum[CPU_BLOCK_ROWS][2];
    const ptrdiff_t a_row = p->a_row, a_column = p->a_column, b_row = p->b_row;
    const float *a = p->a + i * a_row, *b = p->b + j;
    float *c = p->c + i * p->c_row + j;
    for (int r = 0; r < CPU_BLOCK_ROWS; r++) {
        for (int v = 0; v < vectors; v++) {
            if (p->add)
                sum[r][v] = *(const cpu_vector *)(c + r * p->c_row + v * CPU_LANES);
            else
                sum[r][v] = (cpu_vector){0.0f};
        }
    }
    for (int64_t l = 0; l < p->k; l++) {
        const cpu_vector first = *(const cpu_vector *)b;
        const cpu_vector second = vectors > 1 ? *(const cpu_vector *)(b + CPU_LANES) : first;
        for (int r = 0; r < CPU_BLOCK_ROWS; r++) {
            const float factor = a[r * a_row];
            sum[r][0] += factor * first;
            if (vectors > 1)
                sum[r][1] += factor * second;
        }
        a += a_column;
        b += b_row;
    }
    for (int r = 0; r < CPU_BLOCK_ROWS; r++) {
        for (int v = 0; v < vectors; v++)
            *(cpu_vector *)(c + r * p->c_row + v * CPU_LANES) = sum[r][v];
    }
}

static inline void cpu_tile_multiply(const struct cpu_tile_product *p)
{
    for (int64_t j = 0; j < p->n;) {
        const bool wide = p->n - j >= 2 * CPU_LANES;
        for (int64_t i = 0; i < p->m; i += CPU_BLOCK_ROWS) {
            if (wide)
                cpu_tile_block(p, i, j, 2);
            else
                cpu_tile_block(p, i, j, 1);
        }
        j += wide ? 2 * CPU_LANES : CPU_LANES;
    }
}

/* Rows of a float operand: element (i, d) is its element first + i * stride + d. */
struct cpu_rows {
    struct cpu_floats of;
    int64_t first, stride;
};

/* out[i * width + d] = rows(i, d) * factor for i < count, d < size; zero elsewhere up to `height` rows and `width`. */
static inline void cpu_tile_pack(float *out, int64_t height, int64_t width, const struct cpu_rows *rows, int64_t count,
                                 int64_t size, float factor)
{
    for (int64_t i = 0; i < height; i++) {
        float *to = out + i * width;
        const int64_t filled = i < count ? size : 0;
        const float *from = cpu_floats_read(rows->of, rows->first + i * rows->stride, filled, to);
        CPU_OMP(omp simd) /* safe: `from` is either far from `to` or the same */
        for (int64_t d = 0; d < filled; d++)
            to[d] = from[d] * factor;
        for (int64_t d = filled; d < width; d++)
            to[d] = 0.0f;
    }
}

#ifdef CPU_SQUARE
#define CPU_MIX(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)

/* Transposes vector[16] in place by exchanging blocks of 8, 4, 2 and 1. */
static inline __attribute__((always_inline)) void cpu_square_transpose(cpu_vector *vector)
{
    cpu_vector other[CPU_SQUARE];
    for (int i = 0; i < 8; i++) {
        other[i] = CPU_MIX(vector[i], vector[i + 8], 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23);
        other[i + 8] = CPU_MIX(vector[i], vector[i + 8], 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31);
    }
    for (int i = 0; i < CPU_SQUARE; i += i % 4 == 3 ? 5 : 1) {
        vector[i] = CPU_MIX(other[i], other[i + 4], 0, 1, 2, 3, 16, 17, 18, 19, 8, 9, 10, 11, 24, 25, 26, 27);
        vector[i + 4] = CPU_MIX(other[i], other[i + 4], 4, 5, 6, 7, 20, 21, 22, 23, 12, 13, 14, 15, 28, 29, 30, 31);
    }
    for (int i = 0; i < CPU_SQUARE; i += i % 2 == 1 ? 3 : 1) {
        other[i] = CPU_MIX(vector[i], vector[i + 2], 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29);
        other[i + 2] = CPU_MIX(vector[i], vector[i + 2], 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31);
    }
    for (int i = 0; i < CPU_SQUARE; i += 2) {
        vector[i] = CPU_MIX(other[i], other[i + 1], 0, 16, 2, 18, 4, 20, 6, 22, 8, 24, 10, 26, 12, 28, 14, 30);
        vector[i + 1] = CPU_MIX(other[i], other[i + 1], 1, 17, 3, 19, 5, 21, 7, 23, 9, 25, 11, 27, 13, 29, 15, 31);
    }
}
#undef CPU_MIX
#endif

#define CPU_TILE_PIECE 16 /* columns at a time, so that the writes of a transposition stay close together */

/* out[d * width + i] = rows(i, first + d) for d < CPU_TILE_PIECE, for the rows that fill whole squares.  Returns the
 * number of those rows. */
static inline int64_t cpu_tile_transpose(float *out, int64_t width, const struct cpu_rows *rows, int64_t first,
                                         int64_t count)
{
    int64_t i = 0;
#ifdef CPU_SQUARE
    float buffer[CPU_SQUARE];
    for (; i + CPU_SQUARE <= count; i += CPU_SQUARE) {
        cpu_vector vector[CPU_SQUARE];
        for (int r = 0; r < CPU_SQUARE; r++)
            vector[r] = *(const cpu_vector *)cpu_floats_read(rows->of, rows->first + (i + r) * rows->stride + first,
                                                             CPU_SQUARE, buffer);
        cpu_square_transpose(vector);
        for (int d = 0; d < CPU_SQUARE; d++)
            *(cpu_vector *)(out + d * width + i) = vector[d];
    }
#else
    (void)out;
    (void)width;
    (void)rows;
    (void)first;
    (void)count;
#endif
    return i;
}

/* out[d * width + i] = rows(i, d) for i < count, d < size; zero up to width. */
static inline void cpu_tile_pack_transposed(float *out, int64_t width, const struct cpu_rows *rows, int64_t count,
                                            int64_t size)
{
    float buffer[CPU_TILE_PIECE];
    for (int64_t first = 0; first < size; first += CPU_TILE_PIECE) {
        const int64_t columns = min_i64(CPU_TILE_PIECE, size - first);
        const int64_t squares =
            columns == CPU_TILE_PIECE ? cpu_tile_transpose(out + first * width, width, rows, first, count) : 0;
        for (int64_t i = squares; i < count; i++) {
            const float *from = cpu_floats_read(rows->of, rows->first + i * rows->stride + first, columns, buffer);
            for (int64_t d = 0; d < columns; d++)
                out[(first + d) * width + i] = from[d];
        }
        for (int64_t d = first; d < first + columns; d++) {
            for (int64_t i = count; i < width; i++)
                out[d * width + i] = 0.0f;
        }
    }
}

/* Returns the dot product.  Keeps four sums, so that an addition does not wait for the previous one. */
static inline float cpu_dot(const float *a, const float *b, int64_t count)
{
    enum { SUMS = 4, STEP = SUMS * CPU_LANES };
    cpu_vector sums[SUMS] = {{0.0f}};
    float sum = 0.0f;
    int64_t i = 0;
    for (; i + STEP <= count; i += STEP) {
        for (int v = 0; v < SUMS; v++)
            sums[v] += *(const cpu_vector *)(a + i + v * CPU_LANES) * *(const cpu_vector *)(b + i + v * CPU_LANES);
    }
    const cpu_vector all = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    for (int l = 0; l < CPU_LANES; l++)
        sum += all[l];
    for (; i < count; i++)
        sum += a[i] * b[i];
    return sum;
}

#endif
