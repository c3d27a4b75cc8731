/* Tiles of 16-bit products on every processor: portions of a and b are converted to fp32, and CBLAS multiplies them.
 *
 * A portion of up to 384 of k of the tile's rows of a and columns of b is converted to scratch in its memory order.
 * Then one cblas_sgemm adds it to the tile's sums: in place if d is fp32, else in scratch, rounded once at the end.
 * Products with few rows and k contiguous in b, as in generation, skip the library, which would copy b once more.
 * Instead, a piece of one line of b at a time is converted to fp32 and multiplied with all rows while it is in the
 * cache.
 */
#include "backends/cpu/cpu_gemm.h"

#include <cblas.h>
#include <string.h>

#include "backends/cpu/cpu_half.h"
#include "backends/cpu/cpu_kernel.h"
#include "backends/cpu/cpu_tile.h"

#define PORTION_MAX 384
#define ROWS_MAX 512
#define COLUMNS_MAX 512
#define FEW_ROWS_MAX 8
#define FEW_PORTION_MAX 1024
#define FEW_AHEAD 2 /* lines of b to prefetch: 1.3 times the rate of one row, from memory */

static size_t floats_bytes(int64_t floats)
{
    return size_round_up((size_t)floats * sizeof(float), CPU_ALIGNMENT_BYTES);
}

static bool rows_are_few(int64_t rows)
{
    return rows <= FEW_ROWS_MAX;
}

/* Returns the size of portions, which are nearly equal. */
static int64_t portion_size(int64_t rows, int64_t k)
{
    return size_ceil_div(k, size_ceil_div(k, rows_are_few(rows) ? FEW_PORTION_MAX : PORTION_MAX));
}

struct half_scratch {
    float *a, *b;  /* [rows,portion], [portion,columns], or transposed */
    float *sums;   /* [rows,columns] */
    float *buffer; /* [columns] */
    size_t bytes;
};

static struct half_scratch scratch_cut(char *memory, int64_t rows, int64_t columns, int64_t k)
{
    const int64_t portion = portion_size(rows, k);
    const size_t a = floats_bytes(rows * portion), b = floats_bytes(columns * portion);
    const size_t sums = floats_bytes(rows * columns), buffer = floats_bytes(columns);
    struct half_scratch scratch = {.bytes = a + b + sums + buffer};
    if (memory != NULL) {
        scratch.a = (float *)(void *)memory;
        scratch.b = (float *)(void *)(memory + a);
        scratch.sums = (float *)(void *)(memory + a + b);
        scratch.buffer = (float *)(void *)(memory + a + b + sums);
    }
    return scratch;
}

static size_t half_scratch_bytes(int64_t rows, int64_t columns, int64_t k)
{
    return scratch_cut(NULL, rows, columns, k).bytes;
}

/* Converts `lines` lines of `count` elements, `stride` apart, to fp32 without gaps. */
static void lines_convert(const void *memory, enum dtype dtype, int64_t first, int64_t stride, int64_t lines,
                          int64_t count, float *out)
{
    for (int64_t i = 0; i < lines; i++)
        cpu_load(memory, dtype, first + i * stride, count, out + i * count);
}

/* sums[rows,columns] (+)= the portion [begin, begin + size) of k. */
static void portion_multiply(const struct cpu_gemm *job, const struct cpu_gemm_tile *tile, int64_t begin, int64_t size,
                             float *a, float *b, float *sums, int64_t sums_row, bool add)
{
    const bool ta = job->transpose_a, tb = job->transpose_b;
    const int64_t a_count = ta ? tile->rows : size, b_count = tb ? size : tile->columns;
    lines_convert(job->a, job->dtype, ta ? begin * job->m + tile->row : tile->row * job->k + begin,
                  ta ? job->m : job->k, ta ? size : tile->rows, a_count, a);
    lines_convert(job->b, job->dtype, tb ? tile->column * job->k + begin : begin * job->n + tile->column,
                  tb ? job->k : job->n, tb ? tile->columns : size, b_count, b);
    cblas_sgemm(CblasRowMajor, ta ? CblasTrans : CblasNoTrans, tb ? CblasTrans : CblasNoTrans, (int)tile->rows,
                (int)tile->columns, (int)size, 1.0f, a, (int)a_count, b, (int)b_count, add ? 1.0f : 0.0f, sums,
                (int)sums_row);
}

static void line_prefetch(const uint16_t *line, int64_t count)
{
    for (int64_t i = 0; i < count; i += CPU_ALIGNMENT_BYTES / (int64_t)sizeof *line)
        __builtin_prefetch(line + i);
}

/* sums[rows,columns] (+)= the portion, for few rows of a and columns of b that are contiguous in memory. */
static void few_rows_multiply(const struct cpu_gemm *job, const struct cpu_gemm_tile *tile, int64_t begin, int64_t size,
                              float *a, float *sums)
{
    float line[FEW_PORTION_MAX];
    lines_convert(job->a, job->dtype, tile->row * job->k + begin, job->k, tile->rows, size, a);
    for (int64_t j = 0; j < tile->columns; j++) {
        if (j + FEW_AHEAD < tile->columns)
            line_prefetch((const uint16_t *)job->b + (tile->column + j + FEW_AHEAD) * job->k + begin, size);
        const float *b = cpu_load(job->b, job->dtype, (tile->column + j) * job->k + begin, size, line);
        for (int64_t i = 0; i < tile->rows; i++) {
            const float sum = cpu_dot(a + i * size, b, size);
            float *out = sums + i * tile->columns + j;
            *out = begin == 0 ? sum : *out + sum;
        }
    }
}

/* Sets every row of the tile in d to the bias. */
static void bias_spread(const struct cpu_gemm *job, const struct cpu_gemm_tile *tile, float *d, float *buffer)
{
    const float *bias = cpu_load(job->bias, job->bias_dtype, tile->column, tile->columns, buffer);
    for (int64_t i = 0; i < tile->rows; i++)
        memcpy(d + i * job->n, bias, (size_t)tile->columns * sizeof *d);
}

/* Adds the bias or the old value to the sums, and stores them; `buffer` has the size of a row. */
static void tile_finish(const struct cpu_gemm *job, const struct cpu_gemm_tile *tile, float *sums, float *buffer)
{
    const float *bias = NULL;
    if (job->bias != NULL)
        bias = cpu_load(job->bias, job->bias_dtype, tile->column, tile->columns, buffer);
    for (int64_t i = 0; i < tile->rows; i++) {
        const int64_t at = (tile->row + i) * job->n + tile->column;
        float *row = sums + i * tile->columns;
        const float *add = job->accumulate ? cpu_load(job->d, job->d_dtype, at, tile->columns, buffer) : bias;
        if (add != NULL) {
            CPU_OMP(omp simd)
            for (int64_t c = 0; c < tile->columns; c++)
                row[c] += add[c];
        }
        cpu_store(job->d, job->d_dtype, at, tile->columns, row);
    }
}

static void half_tile_run(const struct cpu_gemm *job, const struct cpu_gemm_tile *tile, void *memory)
{
    const struct half_scratch scratch = scratch_cut(memory, tile->rows, tile->columns, job->k);
    const bool few = rows_are_few(tile->rows) && !job->transpose_a && job->transpose_b;
    const bool in_place = job->d_dtype == DTYPE_F32 && !few;
    float *sums = in_place ? (float *)job->d + tile->row * job->n + tile->column : scratch.sums;
    const int64_t sums_row = in_place ? job->n : tile->columns, step = portion_size(tile->rows, job->k);
    if (in_place && job->bias != NULL)
        bias_spread(job, tile, sums, scratch.buffer);
    const bool add_first = in_place && (job->accumulate || job->bias != NULL);
    for (int64_t begin = 0; begin < job->k; begin += step) {
        const int64_t size = min_i64(step, job->k - begin);
        if (few)
            few_rows_multiply(job, tile, begin, size, scratch.a, sums);
        else
            portion_multiply(job, tile, begin, size, scratch.a, scratch.b, sums, sums_row, begin > 0 || add_first);
    }
    if (!in_place)
        tile_finish(job, tile, sums, scratch.buffer);
}

const struct cpu_gemm_path CPU_NAME(cpu_gemm_path_half) = {
    .rows_max = ROWS_MAX,
    .columns_max = COLUMNS_MAX,
    .small_max = COLUMNS_MAX,
    .scratch_bytes = half_scratch_bytes,
    .tile_run = half_tile_run,
};
