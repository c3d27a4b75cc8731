/* Which of cuBLASLt's algorithms a product has: the checkpoint's, else the one that was found to be fastest, else the
 * library's first.
 *
 * An algorithm is known by a hash of what the library says of it, and is only ever one of those that the library offers for
 * the product now: nothing that was read from a file reaches the library.
 */
#ifndef GPT_TRAIN_CUDA_CUDA_GEMM_TUNE_H
#define GPT_TRAIN_CUDA_CUDA_GEMM_TUNE_H

#include <cublasLt.h>

#include "backends/cuda/cuda_gemm_cache.h"

/* So many are asked for, and timed; always the same number, so that the first one does not depend on it. */
#define CUDA_ALGORITHMS_MAX 8
#define CUDA_CHOICES_MAX 1024

struct cuda_choices {
    int32_t count;
    struct backend_choice at[CUDA_CHOICES_MAX];
};

struct cuda_tuning {
    bool on;                    /* --tune: products that are not known are timed while programs are bound */
    int32_t timed, faster;      /* since the last cuda_tuning_store(): products; those that gained */
    double gain_most;           /* 0.2: a fifth less time */
    struct cuda_choices stored; /* of the checkpoint */
    struct cuda_choices kept;   /* of the user's cache, and what was found since */
};

uint64_t cuda_gemm_key_identity(const struct cuda_gemm_key *key);
uint64_t cuda_algorithm_identity(const cublasLtMatmulAlgo_t *algorithm);
/* 0 where there is none. */
uint64_t cuda_choices_find(const struct cuda_choices *choices, uint64_t call);
/* Replaces one of the same call; beyond the limit it is dropped. */
void cuda_choices_put(struct cuda_choices *choices, uint64_t call, uint64_t algorithm);
/* Reads what was kept for this card, driver and library. */
void cuda_tuning_load(struct cuda_backend *cuda);
/* Keeps it, and says what tuning has found; after programs were bound. */
void cuda_tuning_store(struct cuda_backend *cuda);

/* Which of `count` candidates the product gets; *known: it was chosen before, so that it is not timed again. */
int32_t cuda_tuning_pick(struct cuda_backend *cuda, const struct cuda_gemm_key *key,
                         const cublasLtMatmulHeuristicResult_t *candidates, int32_t count, bool *known);
/* Times candidates with `start`, which enqueues one of them, and remembers the fastest.  Waits; allocates two events.
 * Errors: GT_DEVICE. */
struct cuda_gemm_trial {
    const struct cuda_gemm_key *key;
    const cublasLtMatmulHeuristicResult_t *candidates;
    int32_t count;
    cudaStream_t stream;
    enum gt_status (*start)(struct cuda_backend *cuda, const cublasLtMatmulAlgo_t *algorithm, size_t workspace_bytes,
                            const void *context);
    const void *context;
};
enum gt_status cuda_tuning_measure(struct cuda_backend *cuda, const struct cuda_gemm_trial *trial, int32_t *out_best);

#endif
