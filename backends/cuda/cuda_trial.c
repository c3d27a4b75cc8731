/* Times candidates: runs between two events, on the operands of a call, in the arena, while programs are bound.
 *
 * A candidate runs once to load what it needs, once to see how long it takes, and then as often as a fiftieth of a
 * second allows, at most RUNS_MAX times.  The results do not matter: the arena has no data yet.
 */
#include "backends/cuda/cuda_tuning.h"

#define GAIN_MIN 0.03
#define CANDIDATE_SECONDS 0.02
#define RUNS_MAX 20

/* Measures the seconds of one run, as the mean of `runs` in a row. */
static enum gt_status runs_time(struct cuda_backend *cuda, const struct cuda_trial *trial, int32_t candidate,
                                int32_t runs, const cudaEvent_t events[2], double *out)
{
    struct backend *backend = &cuda->base;
    float ms = 0.0f;
    TRY(cuda_check(backend, cudaEventRecord(events[0], cuda->stream), trial->what));
    for (int32_t i = 0; i < runs; i++)
        TRY(trial->start(cuda, candidate, trial->context));
    TRY(cuda_check(backend, cudaEventRecord(events[1], cuda->stream), trial->what));
    TRY(cuda_check(backend, cudaEventSynchronize(events[1]), trial->what));
    TRY(cuda_check(backend, cudaEventElapsedTime(&ms, events[0], events[1]), trial->what));
    *out = (double)ms * 1e-3 / runs;
    return GT_OK;
}

static enum gt_status candidate_time(struct cuda_backend *cuda, const struct cuda_trial *trial, int32_t candidate,
                                     const cudaEvent_t events[2], double *out)
{
    double seconds = 0.0;
    TRY(runs_time(cuda, trial, candidate, 1, events, &seconds));
    TRY(runs_time(cuda, trial, candidate, 1, events, &seconds));
    const double runs = seconds > 0.0 ? CANDIDATE_SECONDS / seconds : RUNS_MAX;
    if (runs >= 2.0)
        TRY(runs_time(cuda, trial, candidate, runs < RUNS_MAX ? (int32_t)runs : RUNS_MAX, events, &seconds));
    *out = seconds;
    return GT_OK;
}

static enum gt_status candidates_time(struct cuda_backend *cuda, const struct cuda_trial *trial,
                                      const cudaEvent_t events[2], struct cuda_trial_result *out)
{
    struct cuda_trial_result result = {.best = 0};
    double first = 0.0;
    for (int32_t i = 0; i < trial->count; i++) {
        double seconds = 0.0;
        TRY(candidate_time(cuda, trial, i, events, &seconds));
        first = i == 0 ? seconds : first;
        if (i == 0 || (seconds < result.seconds && seconds < first * (1.0 - GAIN_MIN))) {
            result.best = i;
            result.seconds = seconds;
        }
    }
    result.gain = first > 0.0 ? 1.0 - result.seconds / first : 0.0;
    *out = result;
    return GT_OK;
}

enum gt_status cuda_trial_run(struct cuda_backend *cuda, const struct cuda_trial *trial, struct cuda_trial_result *out)
{
    struct backend *backend = &cuda->base;
    cudaEvent_t events[2] = {NULL, NULL};
    enum gt_status status = GT_OK;
    for (int i = 0; i < 2 && status == GT_OK; i++)
        status = cuda_check(backend, cudaEventCreateWithFlags(&events[i], cudaEventDefault), "making an event");
    if (status == GT_OK)
        status = candidates_time(cuda, trial, events, out);
    for (int i = 0; i < 2; i++) {
        if (events[i] != NULL)
            (void)cudaEventDestroy(events[i]);
    }
    return status;
}
