/* Tiles of fp32 products with few rows, as in generation; reading b once determines their time.
 *
 * The BLAS library would first copy b into its own order, which pays only for many rows.  Here b is read in memory
 * order, and each value read serves all rows.  With b as [k,n], one row takes four lines at a time; several rows keep a
 * strip of their sums in registers over 16 lines.  With b as [n,k], four rows are multiplied with a few lines at once.
 * The arithmetic for a row does not depend on the number of rows: each element is summed over k in increasing order,
 * for [n,k] in one vector of partial sums.
 */
#include "backends/cpu/cpu_gemm.h"

#include <string.h>

#include "backends/cpu/cpu_half.h"
#include "backends/cpu/cpu_kernel.h"
#include "backends/cpu/cpu_tile.h"

#define ROWS_MAX CPU_GEMM_FEW_ROWS
#define COLUMNS_MAX 512
#define LINES 4        /* lines of b at a time, for one row */
#define STRIP 3        /* vectors of sums that a row keeps in registers */
#define STRIP_LINES 16 /* lines of b for which the sums stay there */
#define DOT_ROWS 4
#if CPU_LANES == 16
#define DOT_LINES 4
#else
#define DOT_LINES 2 /* there are half as many registers */
#endif
/* Rows that share each value read; for more there are not enough registers. */
#define SHARE_ROWS CPU_BLOCK_ROWS

static size_t few_scratch_bytes(int64_t rows, int64_t columns, int64_t k)
{
    (void)rows;
    (void)columns;
    (void)k;
    return 0;
}

/* Initialises d with the bias, its old value, or zero. */
static void row_begin(const struct cpu_gemm *job, const struct cpu_gemm_tile *tile, float *d)
{
    if (job->bias != NULL) {
        const float *bias = cpu_load(job->bias, job->bias_dtype, tile->column, tile->columns, d);
        if (bias != d)
            memcpy(d, bias, (size_t)tile->columns * sizeof *d);
    } else if (!job->accumulate) {
        memset(d, 0, (size_t)tile->columns * sizeof *d);
    }
}

/* d[count] += a[0] b[0..] + a[1] b[stride..] + ..., for LINES lines. */
static void lines_add(float *d, const float *a, const float *b, int64_t stride, int64_t count)
{
    const float *b1 = b + stride, *b2 = b1 + stride, *b3 = b2 + stride;
    int64_t j = 0;
    for (; j + CPU_LANES <= count; j += CPU_LANES) {
        cpu_vector sum = *(const cpu_vector *)(d + j);
        sum += a[0] * *(const cpu_vector *)(b + j);
        sum += a[1] * *(const cpu_vector *)(b1 + j);
        sum += a[2] * *(const cpu_vector *)(b2 + j);
        sum += a[3] * *(const cpu_vector *)(b3 + j);
        *(cpu_vector *)(d + j) = sum;
    }
    for (; j < count; j++)
        d[j] = d[j] + a[0] * b[j] + a[1] * b1[j] + a[2] * b2[j] + a[3] * b3[j];
}

static void line_add(float *d, float a, const float *b, int64_t count)
{
    for (int64_t j = 0; j < count; j++)
        d[j] += a * b[j];
}

/* sums[rows][vectors] += a[rows][lines] b[lines][vectors].  Inlined so that `rows` and `vectors` are constants. */
static inline __attribute__((always_inline)) void strip_add(const struct cpu_gemm *job, float *d, const float *a,
                                                            const float *b, int64_t lines, int rows, int vectors)
{
    cpu_vector sum[SHARE_ROWS][STRIP];
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < vectors; v++)
            sum[r][v] = *(const cpu_vector *)(d + r * job->n + v * CPU_LANES);
    for (int64_t l = 0; l < lines; l++) {
        cpu_vector line[STRIP];
        for (int v = 0; v < vectors; v++)
            line[v] = *(const cpu_vector *)(b + l * job->n + v * CPU_LANES);
        for (int r = 0; r < rows; r++) {
            const float factor = a[r * job->k + l];
            for (int v = 0; v < vectors; v++)
                sum[r][v] += factor * line[v];
        }
    }
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < vectors; v++)
            *(cpu_vector *)(d + r * job->n + v * CPU_LANES) = sum[r][v];
}

/* The same for all columns of a tile. */
static inline __attribute__((always_inline)) void strips_add(const struct cpu_gemm *job, float *d, const float *a,
                                                             const float *b, int64_t lines, int64_t columns, int rows)
{
    int64_t j = 0;
    for (; j + STRIP * CPU_LANES <= columns; j += STRIP * CPU_LANES)
        strip_add(job, d + j, a, b + j, lines, rows, STRIP);
    for (; j + CPU_LANES <= columns; j += CPU_LANES)
        strip_add(job, d + j, a, b + j, lines, rows, 1);
    for (int64_t l = 0; l < lines && j < columns; l++)
        for (int r = 0; r < rows; r++)
            line_add(d + r * job->n + j, a[r * job->k + l], b + l * job->n + j, columns - j);
}

/* Processes rows in groups of eight (if there are registers for it), four, two and one. */
static void rows_add(const struct cpu_gemm *job, const struct cpu_gemm_tile *tile, const float *a, const float *b,
                     int64_t lines, float *d)
{
    for (int64_t row = 0; row < tile->rows;) {
        const int64_t left = tile->rows - row;
        const float *ar = a + row * job->k;
        float *dr = d + row * job->n;
        if (left >= SHARE_ROWS)
            strips_add(job, dr, ar, b, lines, tile->columns, SHARE_ROWS);
        else if (left >= 4)
            strips_add(job, dr, ar, b, lines, tile->columns, 4);
        else if (left >= 2)
            strips_add(job, dr, ar, b, lines, tile->columns, 2);
        else
            strips_add(job, dr, ar, b, lines, tile->columns, 1);
        row += left >= SHARE_ROWS ? SHARE_ROWS : left >= 4 ? 4 : left >= 2 ? 2 : 1;
    }
}

/* Multiplies with b as [k,n]. */
static void columns_multiply(const struct cpu_gemm *job, const struct cpu_gemm_tile *tile, const float *a, float *d)
{
    const float *b = (const float *)job->b + tile->column;
    int64_t k = 0;
    for (; tile->rows > 1 && k < job->k; k += STRIP_LINES)
        rows_add(job, tile, a + k, b + k * job->n, min_i64(STRIP_LINES, job->k - k), d);
    for (; k + LINES <= job->k; k += LINES)
        lines_add(d, a + k, b + k * job->n, job->n, tile->columns);
    for (; k < job->k; k++)
        line_add(d, a[k], b + k * job->n, tile->columns);
}

/* d[rows][lines] += a[rows][k] b[lines][k]'. */
static inline __attribute__((always_inline)) void dots_add(const struct cpu_gemm *job, float *d, const float *a,
                                                           const float *b, int rows, int lines)
{
    cpu_vector sums[DOT_ROWS][DOT_LINES];
    int64_t i = 0;
    for (int r = 0; r < rows; r++)
        for (int l = 0; l < lines; l++)
            sums[r][l] = (cpu_vector){0.0f};
    for (; i + CPU_LANES <= job->k; i += CPU_LANES) {
        cpu_vector line[DOT_LINES];
        for (int l = 0; l < lines; l++)
            line[l] = *(const cpu_vector *)(b + l * job->k + i);
        for (int r = 0; r < rows; r++) {
            const cpu_vector row = *(const cpu_vector *)(a + r * job->k + i);
            for (int l = 0; l < lines; l++)
                sums[r][l] += row * line[l];
        }
    }
    for (int r = 0; r < rows; r++) {
        for (int l = 0; l < lines; l++) {
            float sum = 0.0f;
            for (int v = 0; v < CPU_LANES; v++)
                sum += sums[r][l][v];
            for (int64_t at = i; at < job->k; at++)
                sum += a[r * job->k + at] * b[l * job->k + at];
            d[r * job->n + l] += sum;
        }
    }
}

static inline __attribute__((always_inline)) void dots_rows_add(const struct cpu_gemm *job,
                                                                const struct cpu_gemm_tile *tile, const float *a,
                                                                const float *b, float *d, int lines)
{
    int64_t row = 0;
    for (; row + DOT_ROWS <= tile->rows; row += DOT_ROWS)
        dots_add(job, d + row * job->n, a + row * job->k, b, DOT_ROWS, lines);
    for (; row < tile->rows; row++)
        dots_add(job, d + row * job->n, a + row * job->k, b, 1, lines);
}

/* Multiplies with b as [n,k]. */
static void lines_multiply(const struct cpu_gemm *job, const struct cpu_gemm_tile *tile, const float *a, float *d)
{
    const float *b = (const float *)job->b + tile->column * job->k;
    int64_t j = 0;
    for (; j + DOT_LINES <= tile->columns; j += DOT_LINES)
        dots_rows_add(job, tile, a, b + j * job->k, d + j, DOT_LINES);
    for (; j < tile->columns; j++)
        dots_rows_add(job, tile, a, b + j * job->k, d + j, 1);
}

static void few_tile_run(const struct cpu_gemm *job, const struct cpu_gemm_tile *tile, void *scratch)
{
    (void)scratch;
    const float *a = (const float *)job->a + tile->row * job->k;
    float *d = (float *)job->d + tile->row * job->n + tile->column;
    for (int64_t row = 0; row < tile->rows; row++)
        row_begin(job, tile, d + row * job->n);
    if (job->transpose_b)
        lines_multiply(job, tile, a, d);
    else
        columns_multiply(job, tile, a, d);
}

const struct cpu_gemm_path CPU_NAME(cpu_gemm_path_few) = {
    .rows_max = ROWS_MAX,
    .columns_max = COLUMNS_MAX,
    .small_max = COLUMNS_MAX,
    .scratch_bytes = few_scratch_bytes,
    .tile_run = few_tile_run,
};
