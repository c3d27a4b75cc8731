/* Tiles of fp32 products with few rows, those of generation, which take the time of reading b once.
 *
 * The library would copy b into an order of its own first, which only many rows repay.  Here b is read as it lies: lines
 * of [n,k] are multiplied with each row of a; of [k,n] four lines at a time are added to the rows of d, which stay in the
 * cache.  What is computed of a row does not depend on how many rows there are.
 */
#include "backends/cpu/cpu_gemm.h"

#include <string.h>

#include "backends/cpu/cpu_half.h"
#include "backends/cpu/cpu_kernel.h"
#include "backends/cpu/cpu_tile.h"

#define ROWS_MAX CPU_GEMM_FEW_ROWS
#define COLUMNS_MAX 512
#define LINES 4 /* of b at a time */

static size_t few_scratch_bytes(int64_t rows, int64_t columns, int64_t k)
{
    (void)rows;
    (void)columns;
    (void)k;
    return 0;
}

/* d = bias, the old d, or zero. */
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

/* d[count] += a[0] b[0..] + a[1] b[stride..] + ..., LINES of them. */
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

/* b is [k,n]. */
static void columns_multiply(const struct cpu_gemm *job, const struct cpu_gemm_tile *tile, const float *a, float *d)
{
    const float *b = (const float *)job->b + tile->column;
    int64_t k = 0;
    for (; k + LINES <= job->k; k += LINES) {
        for (int64_t row = 0; row < tile->rows; row++)
            lines_add(d + row * job->n, a + row * job->k + k, b + k * job->n, job->n, tile->columns);
    }
    for (; k < job->k; k++) {
        for (int64_t row = 0; row < tile->rows; row++)
            line_add(d + row * job->n, a[row * job->k + k], b + k * job->n, tile->columns);
    }
}

/* b is [n,k]. */
static void lines_multiply(const struct cpu_gemm *job, const struct cpu_gemm_tile *tile, const float *a, float *d)
{
    const float *b = (const float *)job->b + tile->column * job->k;
    for (int64_t j = 0; j < tile->columns; j++) {
        for (int64_t row = 0; row < tile->rows; row++)
            d[row * job->n + j] += cpu_dot(a + row * job->k, b + j * job->k, job->k);
    }
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
