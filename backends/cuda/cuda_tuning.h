/* What was chosen between algorithms of products and shapes of launches: the checkpoint's choice, else the one that was found
 * to be fastest, else the default; and what it was found to take.
 *
 * A choice is known by two hashes, of the call and of the algorithm, and is only ever one of those that are offered for the
 * call now: nothing that was read from a file reaches a library or a launch.
 */
#ifndef GPT_TRAIN_CUDA_CUDA_TUNING_H
#define GPT_TRAIN_CUDA_CUDA_TUNING_H

#include <cublasLt.h>

#include "backends/cuda/cuda_choices.h"
#include "backends/cuda/cuda_gemm_cache.h"
#include "backends/cuda/cuda_trial.h"

/* So many are asked for, and timed; always the same number, so that the first one does not depend on it. */
#define CUDA_ALGORITHMS_MAX 8

/* Since the last cuda_tuning_store(). */
struct cuda_found {
    int32_t timed, faster;
    double gain_most; /* 0.2: a fifth less time */
};

struct cuda_tuning {
    bool on;                            /* --tune */
    bool is_unread;                     /* there is a list, which may be as good as ever */
    bool now;                           /* calls that nobody has chosen for are timed when they are started */
    struct cuda_found products, shapes; /* what tuning has found */
    struct cuda_choices stored;         /* of the checkpoint */
    struct cuda_choices kept;           /* of the user's cache, and what was found since */
    struct backend_timing timing[CUDA_CHOICES_MAX]; /* of each of those */
    struct cuda_choices reported;                   /* cuda_tuning_choices() */
};

/* Errors: GT_NO_MEMORY. */
enum gt_status cuda_tuning_create(struct cuda_backend *cuda);
void cuda_tuning_destroy(struct cuda_backend *cuda);

uint64_t cuda_gemm_key_identity(const struct cuda_gemm_key *key);
uint64_t cuda_algorithm_identity(const cublasLtMatmulAlgo_t *algorithm);
/* Reads what was kept for this card, driver and library. */
void cuda_tuning_load(struct cuda_backend *cuda);
/* Keeps it, and says what tuning has found; after programs were bound. */
void cuda_tuning_store(struct cuda_backend *cuda);
/* Remembers what a trial of a call has found. */
void cuda_tuning_found(struct cuda_tuning *tuning, struct cuda_found *found, const struct backend_choice *choice,
                       const struct cuda_trial_result *result, const struct backend_timing *timing);

/* Which of `count` candidates the product gets; *known: it was chosen before, so that it is not timed again. */
int32_t cuda_tuning_pick(struct cuda_backend *cuda, const struct cuda_gemm_key *key,
                         const cublasLtMatmulHeuristicResult_t *candidates, int32_t count, bool *known);
/* Times candidates with `start`, which enqueues one of them, and remembers the fastest.  Waits; allocates two events.
 * Errors: GT_DEVICE. */
struct cuda_gemm_trial {
    const struct cuda_gemm_key *key;
    const cublasLtMatmulHeuristicResult_t *candidates;
    int32_t count;
    enum gt_status (*start)(struct cuda_backend *cuda, const cublasLtMatmulAlgo_t *algorithm, size_t workspace_bytes,
                            const void *context);
    const void *context;
};
enum gt_status cuda_tuning_measure(struct cuda_backend *cuda, const struct cuda_gemm_trial *trial, int32_t *out_best);

/* backend_ops.choose, .choices and .timings. */
enum gt_status cuda_tuning_choose(struct backend *backend, const struct backend_choice *choices, size_t count);
const struct backend_choice *cuda_tuning_choices(struct backend *backend, size_t *count);
const struct backend_timing *cuda_tuning_timings(struct backend *backend, size_t *count);

#endif
