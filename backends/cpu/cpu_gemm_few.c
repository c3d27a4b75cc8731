/* Tiles of products with few rows, as in generation; reading b once determines their time.
 *
 * Packing b pays only for many rows.  Here b is read in memory order, 16 bits are widened as they
 * are loaded, and each value read serves all rows.  With b as [k,n], rows keep a strip of their
 * sums in registers over 16 lines.  With b as [n,k], four rows are multiplied with a few lines at
 * once.  In 16 bits the rows of a are widened first, and the sums lie in scratch if d is not fp32;
 * k is divided so that both have a bound.  The arithmetic for a row does not depend on the number
 * of rows: each element is summed over k in increasing order, for [n,k] in one vector of partial
 * sums.
 */
#include "backends/cpu/cpu_gemm.h"

#define ROWS_MAX CPU_GEMM_FEW_ROWS
#define COLUMNS_MAX 512
#define PORTION_MAX 2048 /* of k, in 16 bits */
#define STRIP 3          /* vectors of sums that a row keeps in registers */
#define STRIP_LINES 16   /* lines of b for which the sums stay there */
#define DOT_ROWS 4
#if CPU_LANES == 16
#define DOT_LINES 4
#else
#define DOT_LINES 2 /* there are half as many registers */
#endif
/* Rows that share each value read; for more there are not enough registers. */
#define SHARE_ROWS CPU_BLOCK_ROWS
#define INLINED static inline __attribute__((always_inline))

/* A portion of k of a tile: d[rows,columns] += a[rows,k] b.  Element (i, j) of b is bytes on from
 * `b`, its row length b_row.  b's dtype is a separate argument of all that read it, because it is a
 * constant there. */
struct few {
    const float *a;
    const char *b;
    float *d;
    int64_t rows, columns, k, a_row, b_row, d_row;
};

static int64_t portion_size(const struct cpu_gemm *job)
{
    return job->a.dtype == DTYPE_F32 ? job->k : min_i64(job->k, PORTION_MAX);
}

static size_t floats_bytes(int64_t floats)
{
    return size_round_up((size_t)floats * sizeof(float), CPU_ALIGNMENT_BYTES);
}

static size_t few_scratch_bytes(const struct cpu_gemm *job, const struct cpu_gemm_tile *tile)
{
    const size_t a = job->a.dtype != DTYPE_F32 ? floats_bytes(tile->rows * portion_size(job)) : 0;
    return a + (job->d.dtype != DTYPE_F32 ? floats_bytes(tile->rows * tile->columns) : 0);
}

INLINED cpu_vector vector_at(const char *b, enum dtype dtype, int64_t at)
{
    float buffer[CPU_LANES];
    return *(const cpu_vector *)cpu_floats_read((struct cpu_floats){(void *)b, dtype}, at,
                                                CPU_LANES, buffer);
}

INLINED float value_at(const char *b, enum dtype dtype, int64_t at)
{
    float buffer[1];
    return *cpu_floats_read((struct cpu_floats){(void *)b, dtype}, at, 1, buffer);
}

/* d[j..] += a b[k][j..] for one row and line. */
INLINED void line_add(const struct few *few, enum dtype dtype, int64_t row, int64_t k, int64_t j)
{
    const float a = few->a[row * few->a_row + k];
    for (; j < few->columns; j++)
        few->d[row * few->d_row + j] += a * value_at(few->b, dtype, k * few->b_row + j);
}

/* Adds to sums[rows][vectors], from `row` and column j on, the products of `lines` lines from k on.
 * Inlined so that `rows` and `vectors` are constants. */
INLINED void strip_add(const struct few *few, enum dtype dtype, int64_t row, int64_t k,
                       int64_t lines, int64_t j, int rows, int vectors)
{
    float *d = few->d + row * few->d_row + j;
    const float *a = few->a + row * few->a_row + k;
    cpu_vector sum[SHARE_ROWS][STRIP];
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < vectors; v++)
            sum[r][v] = *(const cpu_vector *)(d + r * few->d_row + v * CPU_LANES);
    for (int64_t l = 0; l < lines; l++) {
        cpu_vector line[STRIP];
        for (int v = 0; v < vectors; v++)
            line[v] = vector_at(few->b, dtype, (k + l) * few->b_row + j + v * CPU_LANES);
        for (int r = 0; r < rows; r++) {
            const float factor = a[r * few->a_row + l];
            for (int v = 0; v < vectors; v++)
                sum[r][v] += factor * line[v];
        }
    }
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < vectors; v++)
            *(cpu_vector *)(d + r * few->d_row + v * CPU_LANES) = sum[r][v];
}

/* The same for all columns. */
INLINED void strips_add(const struct few *few, enum dtype dtype, int64_t row, int64_t k,
                        int64_t lines, int rows)
{
    int64_t j = 0;
    for (; j + STRIP * CPU_LANES <= few->columns; j += STRIP * CPU_LANES)
        strip_add(few, dtype, row, k, lines, j, rows, STRIP);
    for (; j + CPU_LANES <= few->columns; j += CPU_LANES)
        strip_add(few, dtype, row, k, lines, j, rows, 1);
    for (int64_t l = 0; l < lines && j < few->columns; l++)
        for (int r = 0; r < rows; r++)
            line_add(few, dtype, row + r, k + l, j);
}

/* Processes rows in groups of eight (if there are registers for it), four, two and one. */
INLINED void rows_add(const struct few *few, enum dtype dtype, int64_t k)
{
    const int64_t lines = min_i64(STRIP_LINES, few->k - k);
    for (int64_t row = 0; row < few->rows;) {
        const int64_t left = few->rows - row;
        if (left >= SHARE_ROWS)
            strips_add(few, dtype, row, k, lines, SHARE_ROWS);
        else if (left >= 4)
            strips_add(few, dtype, row, k, lines, 4);
        else if (left >= 2)
            strips_add(few, dtype, row, k, lines, 2);
        else
            strips_add(few, dtype, row, k, lines, 1);
        row += left >= SHARE_ROWS ? SHARE_ROWS : left >= 4 ? 4 : left >= 2 ? 2 : 1;
    }
}

/* Multiplies with b as [k,n]. */
INLINED void columns_multiply(const struct few *few, enum dtype dtype)
{
    for (int64_t k = 0; k < few->k; k += STRIP_LINES)
        rows_add(few, dtype, k);
}

/* Adds to d[rows][lines], from `row` and column j on. */
INLINED void dots_add(const struct few *few, enum dtype dtype, int64_t row, int64_t j, int rows,
                      int lines)
{
    const float *a = few->a + row * few->a_row;
    cpu_vector sums[DOT_ROWS][DOT_LINES];
    int64_t i = 0;
    for (int r = 0; r < rows; r++)
        for (int l = 0; l < lines; l++)
            sums[r][l] = (cpu_vector){0.0f};
    for (; i + CPU_LANES <= few->k; i += CPU_LANES) {
        cpu_vector line[DOT_LINES];
        for (int l = 0; dtype != DTYPE_F32 && row == 0 && l < lines; l++) /* fp32 gains nothing */
            __builtin_prefetch(few->b + ((j + lines + l) * few->b_row + i) * 2);
        for (int l = 0; l < lines; l++)
            line[l] = vector_at(few->b, dtype, (j + l) * few->b_row + i);
        for (int r = 0; r < rows; r++) {
            const cpu_vector of_row = *(const cpu_vector *)(a + r * few->a_row + i);
            for (int l = 0; l < lines; l++)
                sums[r][l] += of_row * line[l];
        }
    }
    for (int r = 0; r < rows; r++) {
        for (int l = 0; l < lines; l++) {
            float sum = 0.0f;
            for (int v = 0; v < CPU_LANES; v++)
                sum += sums[r][l][v];
            for (int64_t at = i; at < few->k; at++)
                sum += a[r * few->a_row + at] * value_at(few->b, dtype, (j + l) * few->b_row + at);
            few->d[(row + r) * few->d_row + j + l] += sum;
        }
    }
}

INLINED void dots_rows_add(const struct few *few, enum dtype dtype, int64_t j, int lines)
{
    int64_t row = 0;
    for (; row + DOT_ROWS <= few->rows; row += DOT_ROWS)
        dots_add(few, dtype, row, j, DOT_ROWS, lines);
    for (; row < few->rows; row++)
        dots_add(few, dtype, row, j, 1, lines);
}

/* Multiplies with b as [n,k]. */
INLINED void lines_multiply(const struct few *few, enum dtype dtype)
{
    int64_t j = 0;
    for (; j + DOT_LINES <= few->columns; j += DOT_LINES)
        dots_rows_add(few, dtype, j, DOT_LINES);
    for (; j < few->columns; j++)
        dots_rows_add(few, dtype, j, 1);
}

INLINED void portion_multiply(const struct few *few, enum dtype dtype, bool transpose_b)
{
    if (transpose_b)
        lines_multiply(few, dtype);
    else
        columns_multiply(few, dtype);
}

/* Initialises the sums of a row, whose first element in d is `at`, with the bias, the old value, or
 * zero. */
static void row_begin(const struct cpu_gemm *job, const struct cpu_gemm_tile *tile, int64_t at,
                      float *sums)
{
    if (job->bias.memory != NULL)
        cpu_floats_copy(job->bias, tile->column, tile->columns, sums);
    else if (job->accumulate)
        cpu_floats_copy(job->d, at, tile->columns, sums);
    else
        memset(sums, 0, (size_t)tile->columns * sizeof *sums);
}

static void few_tile_run(const struct cpu_gemm *job, const struct cpu_gemm_tile *tile,
                         void *scratch)
{
    const int64_t portion = portion_size(job), first = tile->row * job->n + tile->column;
    const bool is_f32 = job->a.dtype == DTYPE_F32, in_place = job->d.dtype == DTYPE_F32;
    float *a = scratch, *sums = (float *)scratch +
                                (is_f32 ? 0 : floats_bytes(tile->rows * portion) / sizeof(float));
    struct few few = {.d = in_place ? (float *)job->d.memory + first : sums,
                      .d_row = in_place ? job->n : tile->columns,
                      .rows = tile->rows,
                      .columns = tile->columns,
                      .a_row = is_f32 ? job->k : portion,
                      .b_row = job->transpose_b ? job->k : job->n};
    for (int64_t row = 0; row < tile->rows; row++)
        row_begin(job, tile, first + row * job->n, few.d + row * few.d_row);
    for (int64_t k = 0; k < job->k; k += portion) {
        few.k = min_i64(portion, job->k - k);
        few.b = (const char *)job->b.memory +
                (job->transpose_b ? tile->column * job->k + k : k * job->n + tile->column) *
                    (int64_t)dtype_size_bytes(job->a.dtype);
        few.a = is_f32 ? (const float *)job->a.memory + tile->row * job->k + k : a;
        for (int64_t row = 0; !is_f32 && row < tile->rows; row++)
            cpu_floats_read(job->a, (tile->row + row) * job->k + k, few.k, a + row * portion);
        if (is_f32)
            portion_multiply(&few, DTYPE_F32, job->transpose_b);
        else if (job->a.dtype == DTYPE_BF16)
            portion_multiply(&few, DTYPE_BF16, job->transpose_b);
        else
            portion_multiply(&few, DTYPE_F16, job->transpose_b);
    }
    for (int64_t row = 0; !in_place && row < tile->rows; row++)
        cpu_floats_write(job->d, first + row * job->n, tile->columns, sums + row * tile->columns);
}

const struct cpu_gemm_path CPU_NAME(cpu_gemm_path_few) = {
    .rows_max = ROWS_MAX,
    .columns_max = COLUMNS_MAX,
    .small_max = COLUMNS_MAX,
    .scratch_bytes = few_scratch_bytes,
    .tile_run = few_tile_run,
};
