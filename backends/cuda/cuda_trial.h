/* Timing of candidates on the device: which of several ways to compute the same thing is fastest, and by how much. */
#ifndef GPT_TRAIN_CUDA_CUDA_TRIAL_H
#define GPT_TRAIN_CUDA_CUDA_TRIAL_H

#include "backends/cuda/cuda_backend.h"

/* Candidate 0 is what would be taken without a trial.  `start` enqueues one of them on queue 0. */
struct cuda_trial {
    const char *what; /* "timing a product", for errors */
    int32_t count;
    enum gt_status (*start)(struct cuda_backend *cuda, int32_t candidate, const void *context);
    const void *context;
};

struct cuda_trial_result {
    int32_t best;   /* 0, where no other one is faster by more than two timings differ */
    double seconds; /* of one run of it */
    double gain;    /* 0.2: a fifth less time than candidate 0 */
};

/* Waits; allocates two events.  Errors: GT_DEVICE. */
enum gt_status cuda_trial_run(struct cuda_backend *cuda, const struct cuda_trial *trial, struct cuda_trial_result *out);

#endif
