/* Products of matrices by cuBLASLt, each prepared once.
 *
 * A product is known by its shape, dtypes, transposes, alignments and the workspace that it may take.  What cuBLASLt wants
 * to know of it (a descriptor, three layouts, an algorithm that its heuristic picked) is made when a program is bound, or
 * at its first run, and kept; a run looks it up and enqueues it.  Only algorithms whose sums have a fixed order are taken.
 */
#ifndef GPT_TRAIN_CUDA_CUDA_GEMM_CACHE_H
#define GPT_TRAIN_CUDA_CUDA_GEMM_CACHE_H

#include "backends/cuda/cuda_backend.h"

/* One product in row-major terms: d[m,n] (+)= op(a)[m,k] op(b)[k,n] + bias[n].  `lda` is that of the whole matrix, of which
 * a may be a part.  Unused fields are zero: keys are compared by their bytes. */
struct cuda_gemm_key {
    int64_t m, n, k, lda;
    uint64_t workspace_bytes; /* what may be taken at most */
    uint16_t alignment_a, alignment_b, alignment_d, zero;
    uint8_t dtype, d_dtype; /* of a and b; of d and of the bias */
    uint8_t transpose_a, transpose_b, accumulate, has_bias;
    uint8_t zeros[2];
};

struct cuda_gemm_operands {
    const void *a, *b, *bias;
    void *d, *workspace;
};

/* Errors: GT_DEVICE, GT_NO_MEMORY. */
enum gt_status cuda_gemm_cache_create(struct cuda_backend *cuda);
void cuda_gemm_cache_destroy(struct cuda_backend *cuda);
/* Makes what the product needs, where it is not there yet.  Errors: GT_DEVICE, with the product in words. */
enum gt_status cuda_gemm_prepare(struct cuda_backend *cuda, const struct cuda_gemm_key *key);
/* Enqueues the product.  Errors: GT_DEVICE. */
enum gt_status cuda_gemm_enqueue(struct cuda_backend *cuda, cudaStream_t stream, const struct cuda_gemm_key *key,
                                 const struct cuda_gemm_operands *operands);
/* Prepares all products that a call of op gemm consists of. */
enum gt_status cuda_gemm_bind(struct cuda_backend *cuda, const struct op_call *call);
/* Adds which algorithms prepared products have: how many others there are depends on the time. */
struct cuda_choices;
void cuda_gemm_choices(struct cuda_backend *cuda, struct cuda_choices *out);
/* Version of the library, 130100 for 13.1.0. */
size_t cuda_gemm_library_version(const struct cuda_backend *cuda);

#endif
