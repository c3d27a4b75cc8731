/* Times by events: the calls of a program, and candidates for a call, which run on its operands, in
 * the arena, while programs are bound.
 *
 * A candidate runs once to load what it needs, once to see how long it takes, and then in ROUNDS
 * rounds, in which the candidates take turns: the least of the rounds counts, because clocks
 * change.  Before the first trial the card works for a while, since its clock climbs.  The results
 * do not matter: the arena has no data yet.
 */
#include "backends/cuda/cuda_trial.h"

#include "backends/cuda/cuda_error.h"

#define GAIN_MIN 0.03
#define ROUNDS 3
#define ROUND_SECONDS 0.007
#define RUNS_MAX 7 /* of a candidate in a round */
#define WARM_SECONDS 0.5
#define WARM_RUNS 4096
#define EVENTS_MAX 1024 /* calls that are timed between two waits */

/* Measures the seconds of one run, as the mean of `runs` in a row. */
static enum gt_status runs_time(struct cuda_backend *cuda, const struct cuda_trial *trial,
                                int32_t candidate, int32_t runs, const cudaEvent_t events[2],
                                double *out)
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

/* Returns how many runs of `seconds` each fill `total`, at most `most`. */
static int32_t runs_of(double total, double seconds, int32_t most)
{
    const double runs = seconds > 0.0 ? total / seconds : most;
    return runs < 1.0 ? 1 : runs < most ? (int32_t)runs : most;
}

/* Loads candidate `i`, warms the card up before the first trial, and sets *seconds to about the
 * time of a run. */
static enum gt_status candidate_load(struct cuda_backend *cuda, const struct cuda_trial *trial,
                                     int32_t i, const cudaEvent_t events[2], double *seconds)
{
    double warm = 0.0;
    TRY(runs_time(cuda, trial, i, 1, events, seconds));
    TRY(runs_time(cuda, trial, i, 1, events, seconds));
    if (cuda->is_warm)
        return GT_OK;
    cuda->is_warm = true;
    return runs_time(cuda, trial, i, runs_of(WARM_SECONDS, *seconds, WARM_RUNS), events, &warm);
}

static enum gt_status candidates_time(struct cuda_backend *cuda, const struct cuda_trial *trial,
                                      const cudaEvent_t events[2], struct cuda_trial_result *out)
{
    double about[CUDA_TRIAL_MAX], least[CUDA_TRIAL_MAX] = {0.0};
    int32_t best = 0;
    assert(trial->count <= CUDA_TRIAL_MAX);
    for (int32_t i = 0; i < trial->count; i++)
        TRY(candidate_load(cuda, trial, i, events, &about[i]));
    for (int32_t turn = 0; turn < ROUNDS * trial->count; turn++) {
        const int32_t i = turn % trial->count;
        double seconds = 0.0;
        TRY(runs_time(cuda, trial, i, runs_of(ROUND_SECONDS, about[i], RUNS_MAX), events,
                      &seconds));
        least[i] = turn < trial->count || seconds < least[i] ? seconds : least[i];
    }
    for (int32_t i = 1; i < trial->count; i++)
        if (least[i] < least[best] && least[i] < least[0] * (1.0 - GAIN_MIN))
            best = i;
    *out = (struct cuda_trial_result){best, least[best],
                                      least[0] > 0.0 ? 1.0 - least[best] / least[0] : 0.0};
    return GT_OK;
}

/* Makes `count` events, which events_destroy() destroys, also after an error. */
static enum gt_status events_create(struct cuda_backend *cuda, cudaEvent_t *events, size_t count)
{
    memset(events, 0, count * sizeof *events);
    for (size_t i = 0; i < count; i++)
        TRY(cuda_check(&cuda->base, cudaEventCreateWithFlags(&events[i], cudaEventDefault),
                       "making an event"));
    return GT_OK;
}

static void events_destroy(cudaEvent_t *events, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (events[i] != NULL)
            (void)cudaEventDestroy(events[i]);
}

enum gt_status cuda_trial_run(struct cuda_backend *cuda, const struct cuda_trial *trial,
                              struct cuda_trial_result *out)
{
    cudaEvent_t events[2];
    enum gt_status status = events_create(cuda, events, 2);
    THEN(status, candidates_time(cuda, trial, events, out));
    events_destroy(events, 2);
    return status;
}

/* Enqueues each part of the calls between two events, waits, and reads the times between them. */
static enum gt_status parts_time(struct backend *backend, const struct op_call *calls, size_t parts,
                                 size_t each, const cudaEvent_t *events, double *seconds)
{
    const cudaStream_t stream = cuda_stream(backend);
    TRY(cuda_check(backend, cudaEventRecord(events[0], stream), "timing ops"));
    for (size_t i = 0; i < parts; i++) {
        TRY(backend->ops->run(backend, calls + i * each, each));
        TRY(cuda_check(backend, cudaEventRecord(events[i + 1], stream), "timing ops"));
    }
    TRY(backend->ops->sync(backend));
    for (size_t i = 0; i < parts; i++) {
        float ms = 0.0f;
        TRY(cuda_check(backend, cudaEventElapsedTime(&ms, events[i], events[i + 1]), "timing ops"));
        seconds[i] = (double)ms * 1e-3;
    }
    return GT_OK;
}

/* The host runs far ahead of the device, but for the first call of each EVENTS_MAX, which waits for
 * its launch. */
enum gt_status cuda_run_timed(struct backend *backend, const struct op_call *calls, size_t count,
                              bool whole, double *seconds)
{
    cudaEvent_t events[EVENTS_MAX + 1];
    const size_t each = whole ? count : 1, all = whole ? 1 : count;
    enum gt_status status = GT_OK;
    for (size_t at = 0; at < all && status == GT_OK; at += EVENTS_MAX) {
        const size_t parts = size_min(all - at, EVENTS_MAX);
        status = events_create(cuda_backend_of(backend), events, parts + 1);
        THEN(status, parts_time(backend, calls + at, parts, each, events, seconds + at));
        events_destroy(events, parts + 1);
    }
    return status;
}
