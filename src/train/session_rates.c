/* Which rates a session models times with.
 *
 * A profile's come from its table.  A real device's are calibrated at the first training run of a width, and taken from
 * the cache after that, by --plan too, and what --tune has timed is better still; before, a plan's forecast rests on the
 * one product that session_peak_measure() times.
 */
#include "train/session_rates.h"

#include <inttypes.h>

#include "base/clock.h"
#include "base/log.h"
#include "plan/calibrate.h"

/* The matrix rate of the nominal cpu. */
#define NOMINAL_PEAK_FLOPS 200e9
/* A guess of what one thread of a processor does, within a factor of three of those that were met. */
#define GUESSED_THREAD_FLOPS 40e9
#define CALIBRATE_SECONDS 1.0
#define SHOWN_ROWS 1024 /* a product of few rows is slower, see ramp_rows */

struct plan_rates session_rates_nominal(const struct session *session)
{
    return session->has_profile ? plan_rates_of_profile(&session->profile) : plan_rates_of_peak(NOMINAL_PEAK_FLOPS);
}

/* What the run computes; of a refused one, which has no model, what it was asked for. */
static const struct model_options *options_of(const struct session *session)
{
    return session->model ? &session->model->options : &session->request.options;
}

void session_rates_recall(struct session *session)
{
    char key[CALIBRATE_KEY_MAX];
    calibrate_key(key, &session->info, options_of(session));
    if (!session->rates_recalled) /* once, since a cache that is not trusted is said */
        session->rates_timed = calibrate_load(key, &session->rates);
    session->rates_recalled = true;
}

bool session_rates_guess(struct session *session)
{
    session_rates_recall(session);
    if (!session->rates_timed)
        session->rates = plan_rates_of_peak(GUESSED_THREAD_FLOPS * session->info.threads);
    return session->rates_timed || session->info.host_memory;
}

void session_rates_tuned(struct session *session)
{
    const struct backend_ops *ops = session->device->ops;
    size_t count = 0;
    const struct backend_timing *timings = ops->timings != NULL ? ops->timings(session->device, &count) : NULL;
    if (timings == NULL || count == 0)
        return;
    struct plan_timed timed = plan_rates_time(&session->rates, timings, count);
    log_note("estimates use what --tune measured on this device: %" PRId32 " shapes of products, %" PRId32
             " other kinds of op",
             timed.gemm_classes, timed.kinds);
}

enum gt_status session_rates_calibrate(struct session *session)
{
    struct calibrate_request request = {.device = session->device,
                                        .plan = session->plan,
                                        .options = &session->model->options,
                                        .seconds = CALIBRATE_SECONDS};
    char key[CALIBRATE_KEY_MAX], duration[32];
    session_rates_recall(session);
    if (session->rates_timed)
        return GT_OK;
    int64_t start_ns = clock_monotonic_ns();
    enum gt_status status = calibrate_measure(session->mem, &request, &session->rates);
    if (status != GT_OK)
        return status == GT_NO_FIT ? GT_OK : status; /* the arena is too small: the forecast does without */
    session->rates_timed = true;
    calibrate_store(calibrate_key(key, &session->info, &session->model->options), &session->rates);
    const double share = SHOWN_ROWS / (SHOWN_ROWS + session->rates.ramp_rows);
    log_result("calibration: products %.1f GFLOP/s, elementwise ops %.1f GB/s (timed in %s)",
               session->rates.flops_per_s[OP_GEMM][DTYPE_F32] * share / 1e9,
               session->rates.bytes_per_s[OP_RESIDUAL] / 1e9,
               clock_duration(duration, (double)(clock_monotonic_ns() - start_ns) * 1e-9));
    return GT_OK;
}
