/* gemm: d (+)= op(a) op(b) + bias, by one single-threaded cblas_sgemm per tile of d.
 *
 * OpenMP shares the tiles out.  Their sizes follow from the shape alone and K is never split, so that the bits of d do not
 * depend on the number of threads.  A bias is written into the tile first and added to, while the tile is in the cache.
 * How the sizes were chosen: see tile_choose().
 */
#include "backends/cpu/cpu_kernel.h"

#include <cblas.h>
#include <limits.h>
#include <string.h>

CPU_WORKSPACE_NONE(gemm)

struct gemm_tile {
    int64_t rows, columns;
};

bool CPU_NAME(cpu_gemm_supports)(const struct backend *backend, const struct op_call *call)
{
    (void)backend;
    for (int32_t slot = 0; slot < GEMM_OPERANDS; slot++) {
        const struct operand *operand = &call->operand[slot];
        for (int32_t i = 0; operand->present && i < operand->rank; i++) {
            if (operand->dims[i] > INT_MAX) /* CBLAS counts with int */
                return false;
        }
    }
    return cpu_operands_supported(call);
}

#define TILE_ROWS_MAX 512
#define TILE_COLUMNS_MAX 1024
#define TILE_COLUMNS_MIN 384
#define TILE_COLUMNS_LEAST 128 /* where there would be one tile only */
#define TILES_WANTED 8
#define TILE_MULTIPLE 32       /* of rows and columns: no micro-kernel is cut at a seam */
#define SERIAL_PRODUCTS 100000 /* below, one call on one thread */

/* `size` in `pieces` equal pieces, rounded up to a multiple. */
static int64_t piece_of(int64_t size, int64_t pieces)
{
    return size_ceil_div(size_ceil_div(size, pieces), TILE_MULTIPLE) * TILE_MULTIPLE;
}

/* Each tile packs its rows of a and columns of b anew, which costs 15 % of OpenBLAS' rate at 256 x 192 and 5 to 10 % at
 * 512 x 768 (one thread, processor time, K = 768, AVX-512), so tiles are large: rows up to 512, then columns cut so that
 * there are 8 tiles or more, an even number of them, unless they would become narrower than 384.  On two threads, at the
 * products of a 124M model's step, this ran at 0.75 to 1.15 times the rate of OpenBLAS' own two-thread call on a machine
 * with other load, whose rates scatter as much. */
static struct gemm_tile tile_choose(int64_t m, int64_t n, int64_t k)
{
    if ((double)m * (double)n * (double)k < SERIAL_PRODUCTS)
        return (struct gemm_tile){m, n};
    const int64_t rows = piece_of(m, size_ceil_div(m, TILE_ROWS_MAX)), down = size_ceil_div(m, rows);
    const int64_t least = size_ceil_div(n, TILE_COLUMNS_MAX), wanted = size_ceil_div(TILES_WANTED, down);
    int64_t across = cpu_max(cpu_min(n / TILE_COLUMNS_MIN, wanted), least);
    if (down * across == 1)
        across = cpu_max(cpu_min(n / TILE_COLUMNS_LEAST, 2), 1);
    if (across > least && across > 1 && across % 2 != 0 && down % 2 != 0)
        across--;
    return (struct gemm_tile){rows, piece_of(n, across)};
}

struct gemm_job {
    const float *a, *b, *bias;
    float *d;
    int64_t m, n, k;
    bool transpose_a, transpose_b, accumulate;
};

static void tile_run(const struct gemm_job *job, int64_t row, int64_t column, int64_t rows, int64_t columns)
{
    const float *a = job->a + (job->transpose_a ? row : row * job->k);
    const float *b = job->b + (job->transpose_b ? column * job->k : column);
    float *d = job->d + row * job->n + column;
    if (job->bias != NULL) {
        for (int64_t i = 0; i < rows; i++)
            memcpy(d + i * job->n, job->bias + column, (size_t)columns * sizeof *d);
    }
    cblas_sgemm(CblasRowMajor, job->transpose_a ? CblasTrans : CblasNoTrans,
                job->transpose_b ? CblasTrans : CblasNoTrans, (int)rows, (int)columns, (int)job->k, 1.0f, a,
                (int)(job->transpose_a ? job->m : job->k), b, (int)(job->transpose_b ? job->k : job->n),
                job->accumulate || job->bias != NULL ? 1.0f : 0.0f, d, (int)job->n);
}

enum gt_status CPU_NAME(cpu_gemm_run)(struct backend *backend, int32_t queue, const struct op_call *call)
{
    (void)queue;
    const struct operand *a = &call->operand[GEMM_A], *d = &call->operand[GEMM_D];
    const struct gemm_job job = {
        .a = cpu_operand(backend, call, GEMM_A),
        .b = cpu_operand(backend, call, GEMM_B),
        .bias = cpu_operand(backend, call, GEMM_BIAS),
        .d = cpu_operand(backend, call, GEMM_D),
        .m = d->dims[0],
        .n = d->dims[1],
        .k = call->attrs.transpose_a ? a->dims[0] : a->dims[1],
        .transpose_a = call->attrs.transpose_a,
        .transpose_b = call->attrs.transpose_b,
        .accumulate = cpu_accumulates(call, GEMM_D),
    };
    const struct gemm_tile tile = tile_choose(job.m, job.n, job.k);
    const int64_t down = size_ceil_div(job.m, tile.rows), across = size_ceil_div(job.n, tile.columns);
    const int threads = down * across == 1 ? 1 : (int)cpu_from(backend)->threads;
    (void)threads; /* only OpenMP looks at it */
    CPU_OMP(omp parallel for schedule(dynamic, 1) num_threads(threads))
    for (int64_t t = 0; t < down * across; t++) {
        const int64_t row = t % down * tile.rows, column = t / down * tile.columns;
        tile_run(&job, row, column, cpu_min(tile.rows, job.m - row), cpu_min(tile.columns, job.n - column));
    }
    return GT_OK;
}
