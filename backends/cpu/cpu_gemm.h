/* A matrix product with its memory resolved, and the paths that compute tiles of it.
 *
 * cpu_gemm.c divides d into tiles and distributes them among threads.  A path computes one tile on
 * one thread, in its own scratch.  The path of a call depends on the dtypes, the shape and the
 * processor, never on the number of threads.
 */
#ifndef GPT_TRAIN_CPU_CPU_GEMM_H
#define GPT_TRAIN_CPU_CPU_GEMM_H

#include "backends/cpu/cpu_tile.h"
#include "base/dtype.h"
#include "base/size.h"

/* d[m,n] (+)= op(a)[m,k] op(b)[k,n] + bias[n]; see op.h.  A product has a bias or accumulates,
 * never both. */
struct cpu_gemm {
    struct cpu_floats a, b, bias, d; /* a and b have the same dtype */
    int64_t m, n, k;
    bool transpose_a, transpose_b, accumulate;
};

struct cpu_gemm_tile {
    int64_t row, column, rows, columns;
};

struct cpu_gemm_path {
    const char *name;              /* of special instructions, such as "AMX"; else NULL */
    int64_t rows_max, columns_max; /* of a tile */
    int64_t columns_rounded_max;   /* columns_max where d has 16 bits; 0: the same */
    int64_t few_rows;  /* products of up to as many rows are left to cpu_gemm_path_few; 0:
                          CPU_GEMM_FEW_ROWS */
    int64_t small_max; /* rows and columns of a tile when the product is too small for a second
                          thread */
    int64_t columns_multiple; /* seams between tiles are at multiples of this; 0: no constraint */
    /* Cost of copying an element of a or b, in products; both 0: unknown.  If known, the tile size
     * also depends on the number of threads, so no bit of the result may depend on the tile size.
     */
    double copy_a, copy_b;
    /* Returns the bytes of scratch for a tile of this size, a multiple of CPU_ALIGNMENT_BYTES, with
     * a fixed bound; its place and the job's memory do not count.  NULL: none. */
    size_t (*scratch_bytes)(const struct cpu_gemm *job, const struct cpu_gemm_tile *tile);
    void (*tile_run)(const struct cpu_gemm *job, const struct cpu_gemm_tile *tile, void *scratch);
};

/* Returns the size of a piece: `size` divided into `pieces` equal pieces, rounded up to a multiple.
 */
static inline int64_t cpu_gemm_piece(int64_t size, int64_t pieces, int64_t multiple)
{
    return size_ceil_div(size_ceil_div(size, pieces), multiple) * multiple;
}

#define CPU_LINE_BYTES 64

/* Memory to prefetch a few cache lines at a time, inside of blocks: many lines at once would wait
 * for each other. */
struct cpu_ahead {
    const char *row;
    int64_t stride_bytes, length_bytes, at, rows; /* at: place in the row; rows: rows left */
};

static inline int64_t cpu_ahead_lines(const struct cpu_ahead *ahead)
{
    return ahead->rows * size_ceil_div(ahead->length_bytes, CPU_LINE_BYTES);
}

static inline void cpu_ahead_step(struct cpu_ahead *ahead, int64_t lines)
{
    for (; lines > 0 && ahead->rows > 0; lines--) {
        __builtin_prefetch(ahead->row + ahead->at, 0, 2);
        ahead->at += CPU_LINE_BYTES;
        if (ahead->at >= ahead->length_bytes) {
            ahead->at = 0;
            ahead->row += ahead->stride_bytes;
            ahead->rows--;
        }
    }
}

/* Products of at most CPU_GEMM_FEW_ROWS rows with a not transposed; see cpu_gemm_few.c. */
#define CPU_GEMM_FEW_ROWS 8
extern const struct cpu_gemm_path CPU_NAME(cpu_gemm_path_few);
/* All other products in 16 bits, and in fp32 where AVX-512 makes this path faster than the BLAS
 * library; see cpu_gemm_packed.c. */
extern const struct cpu_gemm_path CPU_NAME(cpu_gemm_path_packed);
/* Products of bf16 on processors that have instructions for them: AVX512-BF16 and AMX; see
 * cpu_gemm_packed.c and cpu_gemm_amx.c. */
extern const struct cpu_gemm_path cpu_gemm_path_packed_avx512_bf16;
extern const struct cpu_gemm_path cpu_gemm_path_amx;

#endif
