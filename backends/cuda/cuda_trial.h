/* Times by events: of a program's calls, and of several ways to compute the same result, to find
 * the fastest. */
#ifndef GPT_TRAIN_CUDA_CUDA_TRIAL_H
#define GPT_TRAIN_CUDA_CUDA_TRIAL_H

#include "backends/cuda/cuda.h"

/* Candidate 0 is the one that is used without a trial.  `start` enqueues a candidate. */
#define CUDA_TRIAL_MAX 8
struct cuda_trial {
    const char *what; /* "timing a product", for errors */
    int32_t count;
    enum gt_status (*start)(struct cuda_backend *cuda, int32_t candidate, const void *context);
    const void *context;
};

struct cuda_trial_result {
    int32_t best;   /* 0 unless another one is faster by more than the noise of timings */
    double seconds; /* of one run of the best */
    double gain;    /* 0.2: a fifth less time than candidate 0 */
};

/* Waits for the device, and allocates two events.  Errors: GT_DEVICE. */
enum gt_status cuda_trial_run(struct cuda_backend *cuda, const struct cuda_trial *trial,
                              struct cuda_trial_result *out);

/* backend_ops.run_timed, by events around the calls, or around the program's graph. */
enum gt_status cuda_run_timed(struct backend *backend, const struct op_call *calls, size_t count,
                              bool whole, double *seconds);

#endif
