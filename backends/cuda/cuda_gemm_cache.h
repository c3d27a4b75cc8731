/* Matrix products by cuBLASLt, each prepared once.
 *
 * A product is identified by its shape, dtypes, transposes, alignments and workspace limit.  The
 * objects that cuBLASLt needs for it (a descriptor, three layouts, an algorithm that its heuristic
 * offers) are created at the product's first run and kept.  Later runs look them up and enqueue the
 * product.  Only algorithms that sum in a fixed order are used.
 */
#ifndef GPT_TRAIN_CUDA_CUDA_GEMM_CACHE_H
#define GPT_TRAIN_CUDA_CUDA_GEMM_CACHE_H

#include "backends/cuda/cuda.h"

/* One product in row-major terms: d[m,n] (+)= op(a)[m,k] op(b)[k,n] + bias[n].  `lda` is the row
 * length of the whole matrix, of which a may be a part.  Unused fields are zero: keys are compared
 * by their bytes. */
struct cuda_gemm_key {
    int64_t m, n, k, lda;
    uint64_t workspace_bytes; /* limit on the workspace */
    uint16_t alignment_a, alignment_b, alignment_d, zero;
    uint8_t dtype, d_dtype; /* of a and b; of d and of the bias */
    uint8_t transpose_a, transpose_b, accumulate, has_bias;
    uint8_t zeros[2];
};

struct cuda_gemm_operands {
    const void *a, *b;
    void *bias, *d, *workspace; /* the bias is only read */
};

/* Errors: GT_DEVICE, GT_NO_MEMORY. */
enum gt_status cuda_gemm_cache_create(struct cuda_backend *cuda);
void cuda_gemm_cache_destroy(struct cuda_backend *cuda);
/* Enqueues the product, and prepares it first if necessary.  Errors: GT_DEVICE, with the product in
 * words. */
enum gt_status cuda_gemm_enqueue(struct cuda_backend *cuda, const struct cuda_gemm_key *key,
                                 const struct cuda_gemm_operands *operands);
/* Adds the algorithms of the products of bound programs.  Other products are left out: how many
 * there are depends on timing. */
struct cuda_algorithms;
void cuda_gemm_algorithms(struct cuda_backend *cuda, struct cuda_algorithms *out);

#endif
