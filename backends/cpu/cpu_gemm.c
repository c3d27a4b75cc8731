/* gemm: d (+)= op(a) op(b) + bias, tile by tile of d, each on one thread.
 *
 * OpenMP distributes the tiles.  K is never divided among threads.  If the bits of d depend on the
 * tiles, tile sizes follow from the shape alone, so no bit depends on the number of threads.
 * Without AVX-512, an fp32 tile is one single-threaded cblas_sgemm; a bias is first written into
 * the tile, and the product added to it while it is in the cache.  Other paths: few rows
 * (cpu_gemm_few.c), 16-bit operands or AVX-512 (cpu_gemm_packed.c), bf16 with AMX (cpu_gemm_amx.c).
 * tile_of_shape() and tile_cheapest() choose the tile sizes.
 */
#include "backends/cpu/cpu_gemm.h"

#include <cblas.h>
#include <math.h>

static bool gemm_supports(const struct op_call *call)
{
    const enum dtype d = call->operand[GEMM_D].dtype;
    return d == call->operand[GEMM_A].dtype || d == DTYPE_F32;
}

#define TILE_ROWS_MAX 512
#define TILE_COLUMNS_MAX 1024
#define TILE_COLUMNS_MIN 384
#define TILE_COLUMNS_LEAST 128 /* if there would be only one tile */
#define TILES_WANTED 8
#define TILE_MULTIPLE 32       /* for rows and columns, so that no seam cuts a micro-kernel */
#define SERIAL_PRODUCTS 100000 /* below this, one thread */
#define PIECES_TRIED 16
#define TURNS_TRIED 2
#define PACKED_COLUMNS_MIN 64         /* with fewer columns, packing does not pay */
#define PACKED_COLUMNS_ALWAYS 193     /* with fewer, it pays only for large products */
#define PACKED_PRODUCTS_MIN 1000000.0 /* large products; smaller ones need no workspace */

static bool product_is_small(int64_t m, int64_t n, int64_t k)
{
    return (double)m * (double)n * (double)k < SERIAL_PRODUCTS;
}

static int64_t columns_max(const struct cpu_gemm_path *path, const struct cpu_gemm *job)
{
    return job->d.dtype != DTYPE_F32 && path->columns_rounded_max > 0 ? path->columns_rounded_max
                                                                      : path->columns_max;
}

/* Each tile packs its rows of a and columns of b anew, which costs 15 % of OpenBLAS' rate at 256 x
 * 192 and 5 to 10 % at 512 x 768 (one thread, processor time, K = 768, AVX-512).  Therefore tiles
 * are large: up to 512 rows, then columns divided so that there are 8 tiles or more, an even
 * number, unless the tiles would become narrower than 384.  On two threads, for the products of a
 * step of a 124M model, this ran at 0.75 to 1.15 times the rate of OpenBLAS' own two-thread call;
 * the machine was busy, so its rates vary as much. */
static struct cpu_gemm_tile tile_of_shape(const struct cpu_gemm_path *path,
                                          const struct cpu_gemm *job)
{
    const int64_t m = job->m, n = job->n;
    const int64_t multiple = path->columns_multiple > 0 ? path->columns_multiple : TILE_MULTIPLE;
    const int64_t rows = cpu_gemm_piece(m, size_ceil_div(m, path->rows_max), TILE_MULTIPLE),
                  down = size_ceil_div(m, rows);
    const int64_t least = size_ceil_div(n, columns_max(path, job)),
                  wanted = size_ceil_div(TILES_WANTED, down);
    int64_t across = max_i64(min_i64(n / TILE_COLUMNS_MIN, wanted), least);
    if (down * across == 1)
        across = max_i64(min_i64(n / TILE_COLUMNS_LEAST, 2), 1);
    if (across > least && across > 1 && across % 2 != 0 && down % 2 != 0)
        across--;
    return (struct cpu_gemm_tile){.rows = min_i64(rows, m),
                                  .columns = min_i64(cpu_gemm_piece(n, across, multiple), n)};
}

/* Returns the time for these tiles when distributed among threads, in multiplications. */
static double tiles_cost(const struct cpu_gemm_path *path, const struct cpu_gemm_tile *tile,
                         int64_t count, int threads)
{
    const double rows = (double)tile->rows, columns = (double)tile->columns;
    return (double)size_ceil_div(count, threads) * rows * columns *
           (1 + path->copy_a / columns + path->copy_b / rows);
}

/* Returns the cheapest of equal tiles.  Tries several numbers of pieces of m, and for each the
 * numbers of pieces of n that give every thread one tile, two, ... */
static struct cpu_gemm_tile tile_cheapest(const struct cpu_gemm_path *path,
                                          const struct cpu_gemm *job, int threads)
{
    const int64_t m = job->m, n = job->n;
    const int64_t down_least = size_ceil_div(m, path->rows_max),
                  across_least = size_ceil_div(n, columns_max(path, job));
    struct cpu_gemm_tile best = {0};
    double best_cost = INFINITY;
    for (int64_t down = down_least; down < down_least + min_i64(threads, PIECES_TRIED); down++) {
        const int64_t turns = size_ceil_div(down * across_least, threads);
        for (int64_t turn = turns; turn < turns + TURNS_TRIED; turn++) {
            const int64_t across = max_i64(turn * threads / down, across_least);
            const struct cpu_gemm_tile tile = {
                .rows = min_i64(cpu_gemm_piece(m, down, TILE_MULTIPLE), m),
                .columns = min_i64(cpu_gemm_piece(n, across, path->columns_multiple), n)};
            const int64_t count = size_ceil_div(m, tile.rows) * size_ceil_div(n, tile.columns);
            const double cost = tiles_cost(path, &tile, count, threads);
            if (cost < best_cost) {
                best = tile;
                best_cost = cost;
            }
        }
    }
    return best;
}

static struct cpu_gemm_tile tile_choose(const struct cpu_gemm_path *path,
                                        const struct cpu_gemm *job, int threads)
{
    const int64_t m = job->m, n = job->n;
    if (product_is_small(m, n, job->k))
        return (struct cpu_gemm_tile){.rows = min_i64(m, path->small_max),
                                      .columns = min_i64(n, path->small_max)};
    return path->copy_a > 0 ? tile_cheapest(path, job, threads) : tile_of_shape(path, job);
}

static void f32_tile_run(const struct cpu_gemm *job, const struct cpu_gemm_tile *tile,
                         void *scratch)
{
    (void)scratch;
    const float *a =
        (const float *)job->a.memory + (job->transpose_a ? tile->row : tile->row * job->k);
    const float *b =
        (const float *)job->b.memory + (job->transpose_b ? tile->column * job->k : tile->column);
    float *d = (float *)job->d.memory + tile->row * job->n + tile->column;
    if (job->bias.memory != NULL) {
        const float *bias = cpu_floats_read(job->bias, tile->column, tile->columns, d);
        for (int64_t i = bias == d ? 1 : 0; i < tile->rows; i++)
            memcpy(d + i * job->n, bias, (size_t)tile->columns * sizeof *d);
    }
    cblas_sgemm(CblasRowMajor, job->transpose_a ? CblasTrans : CblasNoTrans,
                job->transpose_b ? CblasTrans : CblasNoTrans, (int)tile->rows, (int)tile->columns,
                (int)job->k, 1.0f, a, (int)(job->transpose_a ? job->m : job->k), b,
                (int)(job->transpose_b ? job->k : job->n),
                job->accumulate || job->bias.memory != NULL ? 1.0f : 0.0f, d, (int)job->n);
}

static const struct cpu_gemm_path path_library = {
    .rows_max = TILE_ROWS_MAX,
    .columns_max = TILE_COLUMNS_MAX,
    .small_max = SERIAL_PRODUCTS,
    .tile_run = f32_tile_run,
};

/* Returns the job's sizes and flags; its memory is not resolved. */
static struct cpu_gemm job_of(const struct op_call *call)
{
    const struct operand *a = &call->operand[GEMM_A], *d = &call->operand[GEMM_D];
    return (struct cpu_gemm){
        .a.dtype = a->dtype,
        .d.dtype = d->dtype,
        .m = d->dims[0],
        .n = d->dims[1],
        .k = call->attrs.transpose_a ? a->dims[0] : a->dims[1],
        .transpose_a = call->attrs.transpose_a,
        .transpose_b = call->attrs.transpose_b,
        .accumulate = op_accumulates(call, GEMM_D),
    };
}

/* In fp32, our own packing beats the library's only with AVX-512. */
static bool packing_pays(const struct cpu_gemm *job)
{
    const double products = (double)job->m * (double)job->n * (double)job->k;
    const bool large = job->n >= PACKED_COLUMNS_ALWAYS ||
                       (job->n >= PACKED_COLUMNS_MIN && products >= PACKED_PRODUCTS_MIN);
    return job->a.dtype != DTYPE_F32 || (CPU_LANES == 16 && large);
}

/* Products of few rows read b in place, because packing it would not pay. */
static const struct cpu_gemm_path *path_choose(const struct cpu_backend *cpu,
                                               const struct cpu_gemm *job)
{
    const struct cpu_gemm_path *path = job->a.dtype == DTYPE_BF16 ? cpu->bf16 : NULL;
    if (path == NULL)
        path = packing_pays(job) ? &CPU_NAME(cpu_gemm_path_packed) : &path_library;
    const int64_t few = path->few_rows > 0 ? path->few_rows : CPU_GEMM_FEW_ROWS;
    return job->m <= few && !job->transpose_a ? &CPU_NAME(cpu_gemm_path_few) : path;
}

/* Returns the bytes that one thread needs. */
static size_t scratch_bytes(const struct cpu_gemm_path *path, const struct cpu_gemm *job,
                            const struct cpu_gemm_tile *tile)
{
    return path->scratch_bytes != NULL ? path->scratch_bytes(job, tile) : 0;
}

static size_t gemm_workspace_bytes(const struct cpu_backend *cpu, const struct op_call *call)
{
    const struct cpu_gemm job = job_of(call);
    const struct cpu_gemm_path *path = path_choose(cpu, &job);
    const struct cpu_gemm_tile tile = tile_choose(path, &job, (int)cpu->threads);
    return (size_t)cpu->threads * scratch_bytes(path, &job, &tile);
}

static void gemm_run(const struct cpu_backend *cpu, const struct op_call *call)
{
    struct cpu_gemm job = job_of(call);
    const struct cpu_gemm_path *path = path_choose(cpu, &job);
    job.a = cpu_floats_of(cpu, call, GEMM_A);
    job.b = cpu_floats_of(cpu, call, GEMM_B);
    job.bias = cpu_floats_of(cpu, call, GEMM_BIAS);
    job.d = cpu_floats_of(cpu, call, GEMM_D);
    const struct cpu_gemm_tile size = tile_choose(path, &job, (int)cpu->threads);
    const size_t thread_bytes = scratch_bytes(path, &job, &size);
    char *scratch =
        thread_bytes > 0 ? cpu_workspace(cpu, call, (size_t)cpu->threads * thread_bytes) : NULL;
    const int64_t down = size_ceil_div(job.m, size.rows),
                  across = size_ceil_div(job.n, size.columns);
    const bool serial = down * across == 1 || product_is_small(job.m, job.n, job.k);
    const int threads = serial ? 1 : (int)cpu->threads;
    (void)threads; /* used only with OpenMP */
    CPU_OMP(omp parallel for schedule(dynamic, 1) num_threads(threads))
    for (int64_t t = 0; t < down * across; t++) {
        struct cpu_gemm_tile tile = {.row = t % down * size.rows,
                                     .column = t / down * size.columns};
        tile.rows = min_i64(size.rows, job.m - tile.row);
        tile.columns = min_i64(size.columns, job.n - tile.column);
        path->tile_run(&job, &tile,
                       thread_bytes > 0 ? scratch + (size_t)cpu_thread_index() * thread_bytes
                                        : NULL);
    }
}

const struct cpu_op CPU_NAME(cpu_gemm) = {
    .supports = gemm_supports, .workspace_bytes = gemm_workspace_bytes, .run = gemm_run};
