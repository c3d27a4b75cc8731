/* A matrix product with its memory resolved, and the ways to compute tiles of it.
 *
 * cpu_gemm.c cuts d into tiles and shares them out among threads; a path computes one tile on one thread, in scratch of
 * its own.  Which path serves a call depends on the dtypes and on the processor, never on the number of threads.
 */
#ifndef GPT_TRAIN_CPU_CPU_GEMM_H
#define GPT_TRAIN_CPU_CPU_GEMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backends/cpu/cpu_kernel.h"
#include "backends/cpu/cpu_tile.h"
#include "base/dtype.h"
#include "base/size.h"

/* d[m,n] (+)= op(a)[m,k] op(b)[k,n] + bias[n]; see op.h.  A bias and accumulation never come together. */
struct cpu_gemm {
    const void *a, *b, *bias;
    void *d;
    enum dtype dtype, bias_dtype, d_dtype; /* dtype: that of a and b */
    int64_t m, n, k;
    bool transpose_a, transpose_b, accumulate;
};

struct cpu_gemm_tile {
    int64_t row, column, rows, columns;
};

struct cpu_gemm_path {
    const char *name;              /* "AMX"; NULL for the paths that every processor has */
    int64_t rows_max, columns_max; /* of a tile */
    int64_t small_max;             /* rows and columns of a tile of a product that is not worth a second thread */
    int64_t columns_multiple;      /* that a seam between tiles is at; 0: as it comes */
    /* What copying an element of a or b costs, in products; both 0: not known.  Where it is known, the size of tiles follows
     * the number of threads too, so that no bit may depend on it. */
    double copy_a, copy_b;
    /* Bytes of scratch for a tile of this size, a multiple of CPU_ALIGNMENT_BYTES: bounded whatever the product. */
    size_t (*scratch_bytes)(int64_t rows, int64_t columns, int64_t k);
    void (*tile_run)(const struct cpu_gemm *job, const struct cpu_gemm_tile *tile, void *scratch);
};

/* `size` in `pieces` equal pieces, rounded up to a multiple. */
static inline int64_t cpu_gemm_piece(int64_t size, int64_t pieces, int64_t multiple)
{
    return size_ceil_div(size_ceil_div(size, pieces), multiple) * multiple;
}

/* fp32 products of at most CPU_GEMM_FEW_ROWS rows of an a that is not transposed; see cpu_gemm_few.c. */
#define CPU_GEMM_FEW_ROWS 8
extern const struct cpu_gemm_path CPU_NAME(cpu_gemm_path_few);
/* fp32 products where there is CPU_GEMM_PACKED: AVX-512, and a compiler with shuffles; else the library's serve.  See
 * cpu_gemm_packed.c. */
#ifdef CPU_SQUARE
#define CPU_GEMM_PACKED
#endif
extern const struct cpu_gemm_path CPU_NAME(cpu_gemm_path_packed);
/* 16-bit products by way of fp32; see cpu_gemm_half.c. */
extern const struct cpu_gemm_path CPU_NAME(cpu_gemm_path_half);
/* Products of bf16 in AMX instructions, for processors that have them; see cpu_gemm_amx.c. */
extern const struct cpu_gemm_path cpu_gemm_path_amx;

/* In cpu_features.c.  Asks the system for permission to use tiles, which holds for the process from then on. */
bool cpu_has_amx_bf16(void);

#endif
