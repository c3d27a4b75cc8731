/* Tiles of fp32 products on processors with AVX-512, where this is faster than the BLAS library.
 *
 * The method is that of Goto and van de Geijn (ACM TOMS 34(3), 2008; as in BLIS).  A portion of up to 384 of k of the
 * tile's rows of a is copied into slivers of 8 rows, which stay in the second-level cache.  Then panel after panel of
 * 48 columns of b is copied, and each sliver is multiplied with it.  A block of 8 x 48 sums stays in registers.
 * Meanwhile the data of the next panel is prefetched.  Edges are padded with zeros.
 *
 * Every element is summed over k in increasing order, portion by portion, for any tile size, so its bits depend on the
 * shape alone.  Other processors do not have this path; see CPU_GEMM_PACKED.
 */
#include "backends/cpu/cpu_gemm.h"

#include <string.h>

#include "backends/cpu/cpu_kernel.h"
#include "backends/cpu/cpu_tile.h"

#ifdef CPU_GEMM_PACKED

#define SLIVER 8             /* rows of a */
#define VECTORS 3            /* vectors in a row of sums */
#define PANEL (VECTORS * 16) /* columns of b */
#define SQUARE CPU_SQUARE
#define PORTION_MAX 384
#define ROWS_MAX 512
#define COLUMNS_MAX 2304
#define SMALL_MAX 512
#define AHEAD_EVERY 32  /* steps of k between prefetches; all at once, they would wait for each other */
#define AHEAD_ROWS 16   /* rows of a sliver to prefetch */
#define AHEAD_SQUARES 4 /* squares to prefetch, of an operand that is copied */

typedef float half_vector __attribute__((vector_size(SQUARE / 2 * sizeof(float)), aligned(4), may_alias));

/* Returns the size of portions: nearly equal, multiples of SQUARE. */
static int64_t portion_size(int64_t k)
{
    return cpu_gemm_piece(k, size_ceil_div(k, PORTION_MAX), SQUARE);
}

static int64_t slivers_floats(int64_t rows, int64_t k)
{
    return size_ceil_div(rows, SQUARE) * SQUARE * portion_size(k);
}

static size_t packed_scratch_bytes(int64_t rows, int64_t columns, int64_t k)
{
    (void)columns;
    const int64_t floats = slivers_floats(rows, k) + PANEL * portion_size(k);
    return size_round_up((size_t)floats * sizeof(float), CPU_ALIGNMENT_BYTES);
}

/* ---- copies ---- */

/* A portion of `lines` rows of op(a), or columns of op(b).  If k is contiguous, a line begins at from + line * stride;
 * else from + k * stride contains element k of every line. */
struct strip {
    const float *from;
    int64_t stride, lines, size;
    bool k_contiguous;
};

/* Packs 16 lines by 16 of k, from `line` and `k` on: the first eight lines to low[k * row], the others to high. */
static inline void square_pack(const struct strip *strip, int64_t line, int64_t k, float *low, float *high, int64_t row)
{
    const int64_t lines = min_i64(SQUARE, strip->lines - line), size = min_i64(SQUARE, strip->size - k);
    const int64_t count = strip->k_contiguous ? lines : size, length = strip->k_contiguous ? size : lines;
    const float *from = strip->from + (strip->k_contiguous ? line * strip->stride + k : k * strip->stride + line);
    cpu_vector vector[SQUARE];
    if (count == SQUARE && length == SQUARE) {
        for (int i = 0; i < SQUARE; i++)
            vector[i] = *(const cpu_vector *)(from + i * strip->stride);
    } else {
        memset(vector, 0, sizeof vector);
        for (int64_t i = 0; i < count; i++)
            memcpy(&vector[i], from + i * strip->stride, (size_t)length * sizeof *from);
    }
    if (strip->k_contiguous)
        cpu_square_transpose(vector);
    for (int i = 0; i < SQUARE; i++) {
        const half_vector *halves = (const half_vector *)&vector[i];
        *(half_vector *)(low + i * row) = halves[0];
        *(half_vector *)(high + i * row) = halves[1];
    }
}

/* For contiguous k: prefetches the data that is read a few squares later. */
static inline void square_ahead(const struct strip *strip, int64_t line, int64_t k)
{
    for (int64_t i = line; i < min_i64(line + SQUARE, strip->lines); i++)
        __builtin_prefetch(strip->from + i * strip->stride + k + AHEAD_SQUARES * SQUARE);
}

static inline void slivers_square(const struct strip *strip, int64_t line, int64_t k, int64_t portion, float *out)
{
    float *low = out + line * portion + k * SLIVER;
    square_pack(strip, line, k, low, low + SLIVER * portion, SLIVER);
}

/* Packs slivers, one after the other, each [portion][SLIVER].  The operand is read along its rows: across them, a
 * product of 1,024 rows takes a tenth longer. */
static void slivers_pack(const struct strip *strip, int64_t portion, float *out)
{
    if (strip->k_contiguous) {
        for (int64_t line = 0; line < strip->lines; line += SQUARE) {
            for (int64_t k = 0; k < strip->size; k += SQUARE) {
                square_ahead(strip, line, k);
                slivers_square(strip, line, k, portion, out);
            }
        }
    } else {
        for (int64_t k = 0; k < strip->size; k += SQUARE) {
            for (int64_t line = 0; line < strip->lines; line += SQUARE)
                slivers_square(strip, line, k, portion, out);
        }
    }
}

/* Packs one panel, [portion][width]. */
static void panel_pack(const struct strip *strip, int64_t width, float *out)
{
    for (int64_t k = 0; k < strip->size; k += SQUARE) {
        for (int64_t line = 0; line < width; line += SQUARE) {
            float *low = out + k * width + line;
            square_pack(strip, line, k, low, low + SQUARE / 2, width);
        }
    }
}

/* ---- prefetching the next panel's data, a few cache lines at a time ---- */

struct ahead {
    const float *row;
    int64_t stride, length, at, rows;
};

static struct ahead ahead_of(const struct strip *strip)
{
    const int64_t columns = min_i64(PANEL, strip->lines);
    return (struct ahead){.row = strip->from,
                          .stride = strip->stride,
                          .length = strip->k_contiguous ? strip->size : columns,
                          .rows = strip->k_contiguous || columns == 0 ? columns : strip->size};
}

static inline void ahead_step(struct ahead *ahead, int64_t lines)
{
    for (; lines > 0 && ahead->rows > 0; lines--) {
        __builtin_prefetch(ahead->row + ahead->at, 0, 2);
        ahead->at += SQUARE;
        if (ahead->at >= ahead->length) {
            ahead->at = 0;
            ahead->row += ahead->stride;
            ahead->rows--;
        }
    }
}

/* ---- products ---- */

static const float zero[PANEL]; /* a zero row to add blocks to */

/* Sums stay in registers only if all their indices are constants. */
#ifdef __clang__
#define UNROLLED _Pragma("clang loop unroll(full)")
#else
#define UNROLLED _Pragma("GCC unroll 8")
#endif
#define EACH_SUM UNROLLED for (int r = 0; r < SLIVER; r++) UNROLLED for (int v = 0; v < vectors; v++)

/* A sliver of a, a panel of b, and the block of d, which is set to with + sliver * panel. */
struct block {
    const float *a, *b, *with;
    float *d;
    int64_t size, with_row, d_row; /* size: of k; with_row, d_row: row lengths */
    struct ahead *ahead;
    int64_t ahead_lines, ahead_rows; /* lines of the next panel, and rows of d, to prefetch per AHEAD_EVERY of k */
};

static inline __attribute__((always_inline)) void one_k(cpu_vector sum[SLIVER][VECTORS], const float *a, const float *b,
                                                        int vectors)
{
    cpu_vector line[VECTORS];
    UNROLLED for (int v = 0; v < vectors; v++) line[v] = *(const cpu_vector *)(b + v * SQUARE);
    UNROLLED for (int r = 0; r < SLIVER; r++)
    {
        const float factor = a[r];
        UNROLLED for (int v = 0; v < vectors; v++) sum[r][v] += factor * line[v];
    }
}

/* Prefetches this step's rows of d; all at once, they would delay lines of the panel. */
static inline __attribute__((always_inline)) void sums_ahead(const struct block *block, int64_t step, int vectors)
{
    const int64_t end = min_i64((step + 1) * block->ahead_rows, SLIVER);
    for (int64_t r = step * block->ahead_rows; r < end; r++) {
        for (int v = 0; v < vectors; v++)
            __builtin_prefetch(block->d + r * block->d_row + v * SQUARE, 1);
    }
}

/* Computes SLIVER x vectors of d, two of k at a time: `size` is even, or the last line is zero.  Inlined so that
 * `vectors` is a constant. */
static inline __attribute__((always_inline)) void sums_multiply(const struct block *block, int vectors)
{
    const float *a = block->a, *b = block->b;
    const int64_t with_row = block->with_row, d_row = block->d_row;
    cpu_vector sum[SLIVER][VECTORS];
    EACH_SUM sum[r][v] = (cpu_vector){0.0f};
    for (int64_t k = 0; k < block->size; k += 2) {
        if (k % AHEAD_EVERY == 0) {
            ahead_step(block->ahead, block->ahead_lines);
            sums_ahead(block, k / AHEAD_EVERY, vectors);
        }
        __builtin_prefetch(a + AHEAD_ROWS * SLIVER);
        one_k(sum, a, b, vectors);
        one_k(sum, a + SLIVER, b + vectors * SQUARE, vectors);
        a += 2 * SLIVER;
        b += 2 * vectors * SQUARE;
    }
    EACH_SUM sum[r][v] += *(const cpu_vector *)(block->with + r * with_row + v * SQUARE);
    EACH_SUM *(cpu_vector *)(block->d + r * d_row + v * SQUARE) = sum[r][v];
}

static __attribute__((noinline)) void block_multiply(const struct block *block, int64_t vectors)
{
    if (vectors == 3)
        sums_multiply(block, 3);
    else if (vectors == 2)
        sums_multiply(block, 2);
    else
        sums_multiply(block, 1);
}

/* Does the same for a block of which only rows x columns exist. */
static void edge_multiply(const struct block *block, int64_t vectors, int64_t rows, int64_t columns)
{
    float sums[SLIVER * PANEL];
    struct block whole = *block;
    whole.with = zero;
    whole.with_row = 0;
    whole.d = sums;
    whole.d_row = PANEL;
    block_multiply(&whole, vectors);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < columns; i++)
            block->d[r * block->d_row + i] = block->with[r * block->with_row + i] + sums[r * PANEL + i];
}

/* Returns the part of an operand that the tile needs, from k on. */
static struct strip strip_of(const float *matrix, bool k_contiguous, int64_t row_length, int64_t line, int64_t lines,
                             int64_t k, int64_t size)
{
    return (struct strip){.from = matrix + (k_contiguous ? line * row_length + k : k * row_length + line),
                          .stride = row_length,
                          .lines = lines,
                          .size = size,
                          .k_contiguous = k_contiguous};
}

static struct strip strip_skip(struct strip strip, int64_t lines)
{
    strip.from += strip.k_contiguous ? lines * strip.stride : lines;
    strip.lines = strip.lines > lines ? strip.lines - lines : 0;
    return strip;
}

/* d's tile = with + slivers * the strip of b, panel by panel. */
static void panels_multiply(const struct cpu_gemm *job, const struct cpu_gemm_tile *tile, const float *slivers,
                            struct strip b, const float *with, int64_t with_row, float *panel)
{
    const int64_t portion = portion_size(job->k), blocks = size_ceil_div(tile->rows, SLIVER);
    const int64_t lines = PANEL * size_ceil_div(b.size, SQUARE); /* cache lines in a panel */
    const int64_t steps = size_ceil_div(b.size, AHEAD_EVERY);
    for (int64_t column = 0; column < tile->columns; column += PANEL, b = strip_skip(b, PANEL)) {
        const int64_t columns = min_i64(PANEL, tile->columns - column), vectors = size_ceil_div(columns, SQUARE);
        const struct strip next = strip_skip(b, PANEL);
        struct ahead ahead = ahead_of(&next);
        panel_pack(&b, vectors * SQUARE, panel);
        for (int64_t row = 0; row < tile->rows; row += SLIVER) {
            const int64_t rows = min_i64(SLIVER, tile->rows - row);
            const struct block block = {.a = slivers + row * portion,
                                        .b = panel,
                                        .with = with != NULL ? with + row * with_row + column : zero,
                                        .d = (float *)job->d + (tile->row + row) * job->n + tile->column + column,
                                        .size = b.size,
                                        .with_row = with_row,
                                        .d_row = job->n,
                                        .ahead = &ahead,
                                        .ahead_lines = size_ceil_div(lines, blocks * steps),
                                        .ahead_rows = size_ceil_div(SLIVER, steps)};
            if (rows == SLIVER && columns == vectors * SQUARE)
                block_multiply(&block, vectors);
            else
                edge_multiply(&block, vectors, rows, columns);
        }
    }
}

static void packed_tile_run(const struct cpu_gemm *job, const struct cpu_gemm_tile *tile, void *scratch)
{
    const int64_t portion = portion_size(job->k);
    float *slivers = scratch, *panel = slivers + slivers_floats(tile->rows, job->k), bias[COLUMNS_MAX];
    const float *d = (const float *)job->d + tile->row * job->n + tile->column, *with = job->accumulate ? d : NULL;
    int64_t with_row = job->accumulate ? job->n : 0;
    if (job->bias != NULL)
        with = cpu_load(job->bias, job->bias_dtype, tile->column, tile->columns, bias);
    for (int64_t k = 0; k < job->k; k += portion, with = d, with_row = job->n) {
        const int64_t size = min_i64(portion, job->k - k);
        const struct strip a =
            strip_of(job->a, !job->transpose_a, job->transpose_a ? job->m : job->k, tile->row, tile->rows, k, size);
        const struct strip b = strip_of(job->b, job->transpose_b, job->transpose_b ? job->k : job->n, tile->column,
                                        tile->columns, k, size);
        slivers_pack(&a, portion, slivers);
        panels_multiply(job, tile, slivers, b, with, with_row, panel);
    }
}

const struct cpu_gemm_path CPU_NAME(cpu_gemm_path_packed) = {
    .rows_max = ROWS_MAX,
    .columns_max = COLUMNS_MAX,
    .small_max = SMALL_MAX,
    .columns_multiple = PANEL,
    .copy_a = 40,
    .copy_b = 16,
    .scratch_bytes = packed_scratch_bytes,
    .tile_run = packed_tile_run,
};

#endif
