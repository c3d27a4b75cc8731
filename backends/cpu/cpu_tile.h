/* Small matrix products on packed tiles, the inner loops of attention.
 *
 * Vectors are GNU vector types, as wide as the instruction set that this file is compiled for.  The
 * compiler keeps a block of the result in registers.  Widths are multiples of CPU_TILE_COLUMNS,
 * heights of CPU_TILE_ROWS: the packing functions pad tiles, and convert 16-bit rows to fp32.  One
 * thread sums each element over k in increasing order.
 */
#ifndef GPT_TRAIN_CPU_CPU_TILE_H
#define GPT_TRAIN_CPU_CPU_TILE_H

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

/* Sums and squares stay in registers only if all their indices are constants. */
#ifdef __clang__
#define CPU_UNROLLED _Pragma("clang loop unroll(full)")
#else
#define CPU_UNROLLED _Pragma("GCC unroll 16")
#endif

/* A matrix: element (i, j) is at[i * row + j * column]. */
struct cpu_tile {
    float *at;
    ptrdiff_t row, column;
};

/* Computes a block of CPU_BLOCK_ROWS rows and `vectors` vectors at the beginning of c.  `vectors`
 * is a constant. */
static inline __attribute__((always_inline)) void cpu_tile_block(struct cpu_tile a,
                                                                 struct cpu_tile b,
                                                                 struct cpu_tile c, int64_t k,
                                                                 bool add, int vectors)
{
    cpu_vector sum[CPU_BLOCK_ROWS][2];
    for (int r = 0; r < CPU_BLOCK_ROWS; r++) {
        for (int v = 0; v < vectors; v++)
            sum[r][v] =
                add ? *(const cpu_vector *)(c.at + r * c.row + v * CPU_LANES) : (cpu_vector){0.0f};
    }
    for (int64_t l = 0; l < k; l++) {
        const cpu_vector first = *(const cpu_vector *)b.at;
        const cpu_vector second = vectors > 1 ? *(const cpu_vector *)(b.at + CPU_LANES) : first;
        for (int r = 0; r < CPU_BLOCK_ROWS; r++) {
            const float factor = a.at[r * a.row];
            sum[r][0] += factor * first;
            if (vectors > 1)
                sum[r][1] += factor * second;
        }
        a.at += a.column;
        b.at += b.row;
    }
    for (int r = 0; r < CPU_BLOCK_ROWS; r++) {
        for (int v = 0; v < vectors; v++)
            *(cpu_vector *)(c.at + r * c.row + v * CPU_LANES) = sum[r][v];
    }
}

/* c[m,n] = a[m,k] b[k,n], or += with `add`.  The rows of b and c are contiguous.  m is rounded up
 * to CPU_BLOCK_ROWS: those rows of a and c must exist. */
static inline void cpu_tile_multiply(struct cpu_tile a, struct cpu_tile b, struct cpu_tile c,
                                     int64_t m, int64_t n, int64_t k, bool add)
{
    for (int64_t j = 0; j < n;) {
        const bool wide = n - j >= 2 * CPU_LANES;
        const struct cpu_tile columns = {b.at + j, b.row, 1};
        for (int64_t i = 0; i < m; i += CPU_BLOCK_ROWS) {
            const struct cpu_tile rows = {a.at + i * a.row, a.row, a.column},
                                  block = {c.at + i * c.row + j, c.row, 1};
            if (wide)
                cpu_tile_block(rows, columns, block, k, add, 2);
            else
                cpu_tile_block(rows, columns, block, k, add, 1);
        }
        j += wide ? 2 * CPU_LANES : CPU_LANES;
    }
}

/* Rows of a float operand: element (i, d) is its element first + i * stride + d. */
struct cpu_rows {
    struct cpu_floats of;
    int64_t first, stride;
};

/* out[i * width + d] = rows(i, d) * factor for i < count, d < size; zero elsewhere up to `height`
 * rows and `width`. */
static inline void cpu_tile_pack(float *out, int64_t height, int64_t width,
                                 const struct cpu_rows *rows, int64_t count, int64_t size,
                                 float factor)
{
    for (int64_t i = 0; i < height; i++) {
        float *to = out + i * width;
        const int64_t filled = i < count ? size : 0;
        const float *from = cpu_floats_read(rows->of, rows->first + i * rows->stride, filled, to);
        CPU_SIMD(d, filled) /* safe: `from` is either far from `to` or the same */
            to[d] = from[d] * factor;
        for (int64_t d = filled; d < width; d++)
            to[d] = 0.0f;
    }
}

#if defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector)
#define CPU_SHUFFLES
#endif
#endif

#ifdef CPU_SHUFFLES
/* Source of lane l of the first and second of a pair of vectors whose off-diagonal blocks of `size`
 * lanes are swapped. */
#define CPU_LOW(l, size) ((l) & (size) ? CPU_LANES + (l) - (size) : (l))
#define CPU_HIGH(l, size) ((l) & (size) ? CPU_LANES + (l) : (l) + (size))
#define CPU_FOUR(lane, l, size) \
    lane(l, size), lane(l + 1, size), lane(l + 2, size), lane(l + 3, size)
#if CPU_LANES == 16
#define CPU_EACH(lane, size)                                                   \
    CPU_FOUR(lane, 0, size), CPU_FOUR(lane, 4, size), CPU_FOUR(lane, 8, size), \
        CPU_FOUR(lane, 12, size)
#elif CPU_LANES == 8
#define CPU_EACH(lane, size) CPU_FOUR(lane, 0, size), CPU_FOUR(lane, 4, size)
#else
#define CPU_EACH(lane, size) CPU_FOUR(lane, 0, size)
#endif
#define CPU_EXCHANGE(vector, size)                                                             \
    CPU_UNROLLED for (int i = 0; i < CPU_LANES; i++)                                           \
    {                                                                                          \
        if ((i & (size)) == 0) {                                                               \
            const cpu_vector low = vector[i], high = vector[i + (size)];                       \
            vector[i] = __builtin_shufflevector(low, high, CPU_EACH(CPU_LOW, size));           \
            vector[i + (size)] = __builtin_shufflevector(low, high, CPU_EACH(CPU_HIGH, size)); \
        }                                                                                      \
    }
#endif

/* Transposes vector[CPU_LANES] in place. */
static inline __attribute__((always_inline)) void cpu_square_transpose(cpu_vector *vector)
{
#ifdef CPU_SHUFFLES
#if CPU_LANES > 8
    CPU_EXCHANGE(vector, 8)
#endif
#if CPU_LANES > 4
    CPU_EXCHANGE(vector, 4)
#endif
    CPU_EXCHANGE(vector, 2)
    CPU_EXCHANGE(vector, 1)
#else
    float from[CPU_LANES][CPU_LANES];
    memcpy(from, vector, sizeof from);
    for (int i = 0; i < CPU_LANES; i++)
        for (int l = 0; l < CPU_LANES; l++)
            vector[i][l] = from[l][i];
#endif
}

/* out[d * width + i] = rows(i, d) for i < count, d < size; zero up to width.  Processes squares of
 * rows and columns, so that the writes stay close together. */
static inline void cpu_tile_pack_transposed(float *out, int64_t width, const struct cpu_rows *rows,
                                            int64_t count, int64_t size)
{
    float buffer[CPU_LANES];
    for (int64_t first = 0; first < size; first += CPU_LANES) {
        const int64_t columns = min_i64(CPU_LANES, size - first);
        int64_t i = 0;
        for (; columns == CPU_LANES && i + CPU_LANES <= count; i += CPU_LANES) {
            cpu_vector vector[CPU_LANES];
            CPU_UNROLLED for (int r = 0; r < CPU_LANES; r++) vector[r] =
                *(const cpu_vector *)cpu_floats_read(
                    rows->of, rows->first + (i + r) * rows->stride + first, CPU_LANES, buffer);
            cpu_square_transpose(vector);
            CPU_UNROLLED for (int d = 0; d < CPU_LANES; d++) *
                (cpu_vector *)(out + (first + d) * width + i) = vector[d];
        }
        for (; i < count; i++) {
            const float *from =
                cpu_floats_read(rows->of, rows->first + i * rows->stride + first, columns, buffer);
            for (int64_t d = 0; d < columns; d++)
                out[(first + d) * width + i] = from[d];
        }
        for (int64_t d = first; d < first + columns; d++) {
            for (i = count; i < width; i++)
                out[d * width + i] = 0.0f;
        }
    }
}

#endif
