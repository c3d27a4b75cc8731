/* Chooses the rates with which a session models times.
 *
 * A profile's rates come from its table.  A real device's are calibrated at the first training run
 * of a width and cached; later runs and --plan read the cache.  Timings of --tune are better still.
 * Before any of them exists, a plan's forecast is based on the one product that
 * session_peak_measure() times.
 */
#include "session/session_rates.h"

#include <math.h>

#include "backend/backend_call.h"
#include "backend/backend_peak.h"
#include "base/clock.h"
#include "base/size.h"
#include "base/thread.h"
#include "plan/calibrate.h"
#include "session/session_device.h"

/* A guess of the rate of one thread of a processor, within a factor of four of those measured. */
#define GUESSED_THREAD_FLOPS 60e9
#define GUESS_FACTOR 4.0
#define CALIBRATE_SECONDS 1.0
#define HELD_MOST 0.9      /* of the processors; a measured share may be 1 */
#define OUTDATED_RATIO 2.0 /* of modelled and measured steps */
/* The largest workspace of a product, and its matrices. */
#define SCRATCH_BYTES_MIN ((uint64_t)40 << 20)
#define SHOWN_ROWS 1024 /* a product of few rows is slower, see ramp_rows */
#define LINK_BYTES ((uint64_t)64 << 20)
#define LINK_BYTES_STEP ((uint64_t)1 << 20)
#define LINK_PASSES 3  /* the first one may wait for the card to wake */
#define LINK_SLOW 0.28 /* of a card's own rate: a quarter, plus the scatter of timings */

/* Returns the options of the run.  A refused run has no model, and these are the requested ones. */
static const struct model_options *options_of(const struct session *session)
{
    return session->model ? &session->model->options : &session->search.request.options;
}

/* The key of the rates in the cache, in text that lives as long as the enclosing block. */
#define KEY_OF(session) \
    calibrate_key((char[CALIBRATE_KEY_MAX]){0}, &(session)->device.info, options_of(session))

/* Sets the rates from the cache, if it has the times of an earlier run. */
static void rates_recall(struct session *session)
{
    if (!session->timing.is_recalled) /* once, because an untrusted cache is logged */
        session->timing.is_timed = calibrate_load(KEY_OF(session), &session->timing.rates);
    session->timing.is_recalled = true;
}

bool session_rates_guess(struct session *session)
{
    rates_recall(session);
    if (!session->timing.is_timed) {
        session->timing.rates =
            plan_rates_of_peaks(GUESSED_THREAD_FLOPS * session->device.info.threads,
                                GUESSED_THREAD_FLOPS * session->device.info.threads);
        session->timing.rates.uncertainty = GUESS_FACTOR;
    }
    return session->timing.is_timed || session->device.info.host_memory;
}

/* If the backend has timed calls to choose between algorithms, now or in earlier runs, sets the
 * rates from those timings and logs one line. */
static void rates_tuned(struct session *session)
{
    size_t count = 0;
    const struct backend_timing *timings = backend_timings(session->device.backend, &count);
    if (timings == NULL || count == 0)
        return;
    struct plan_timed timed = plan_rates_time(&session->timing.rates, timings, count);
    session->timing.rates.uncertainty = PLAN_TIMED_UNCERTAINTY;
    session->timing.rates.disturbed = false;
    log_note("estimates use what --tune measured on this device: %" PRId32
             " shapes of products, %" PRId32 " other kinds of op",
             timed.gemm_classes, timed.kinds);
}

/* Times copies between the two arenas, both ways at once, and notes a link that is much slower than
 * the card's own. */
static enum gt_status link_measure(struct session *session)
{
    const struct plan *plan = session->plan;
    const int32_t host = plan->device_segments;
    const uint64_t half = size_min(plan->segment[0].size_bytes, plan->segment[host].size_bytes) / 2;
    const int64_t bytes = (int64_t)size_min(half - half % LINK_BYTES_STEP, LINK_BYTES);
    struct backend *device = session->device.backend;
    struct op_call calls[] = {
        {.kind = OP_FETCH}, {.kind = OP_STORE}, {.kind = OP_WAIT}, {.kind = OP_WAIT}};
    double rate = 0.0;
    if (bytes == 0) /* so few bytes take no time */
        return GT_OK;
    for (int i = 0; i < 4; i++)
        for (int slot = FETCH_X; slot <= FETCH_Y; slot++) {
            const bool on_host = (i % 2 == 1) == (slot == FETCH_Y);
            calls[i].operand[slot] =
                (struct operand){.present = true,
                                 .dtype = DTYPE_U8,
                                 .rank = 1,
                                 .dims = {bytes},
                                 .at = {.space = on_host ? SPACE_HOST : SPACE_DEVICE,
                                        .segment = (uint8_t)(on_host ? host : 0),
                                        .offset_bytes = (uint64_t)(i % 2 * bytes)}};
        }
    for (int pass = 0; pass < LINK_PASSES; pass++) {
        const int64_t start_ns = clock_monotonic_ns();
        TRY(backend_run(device, calls, 4));
        TRY(backend_sync(device));
        rate = fmax(rate, (double)bytes / ((double)(clock_monotonic_ns() - start_ns + 1) * 1e-9));
    }
    TRY(backend_info(device, &session->device.info)); /* whether copies are asynchronous */
    const double rated = device_profile_link(session->device.info.device);
    const int32_t engines = session->device.info.copy_engines;
    plan_rates_link_set(&session->timing.rates, engines < 2 ? 2.0 * rate : rate, engines);
    session->timing.rates.link_timed = true;
    log_result("link: %.1f GB/s each way between host memory and the card", rate / 1e9);
    if (engines > 0 && rate < rated * LINK_SLOW)
        log_note(
            "the link to %s is slow: it can reach %.1f GB/s; a slot with fewer lanes, or an older one, is the "
            "usual cause",
            session->device.info.device, rated / 1e9);
    return GT_OK;
}

/* Times the ops of a small model.  Sets *steady to false if other programs disturbed the timing. */
static enum gt_status ops_measure(struct session *session, bool *steady)
{
    struct calibrate_request request = {.device = session->device.backend,
                                        .plan = session->plan,
                                        .options = &session->model->options,
                                        .seconds = CALIBRATE_SECONDS};
    struct contention before, after;
    contention_read(&before);
    TRY(calibrate_measure(session->mem, &request, &session->timing.rates, steady));
    contention_read(&after);
    if (!session->device.info.host_memory)
        plan_rates_link_set(&session->timing.rates, PLAN_LINK_BYTES_PER_S,
                            session->device.info.copy_engines);
    session->timing.is_timed = true;
    const double share = SHOWN_ROWS / (SHOWN_ROWS + session->timing.rates.ramp_rows);
    log_result("calibration: products %.1f GFLOP/s, elementwise ops %.1f GB/s (timed in %s)",
               session->timing.rates.flops_per_s[OP_GEMM][session->device.dtype] * share / 1e9,
               session->timing.rates.bytes_per_s[OP_RESIDUAL] / 1e9,
               CLOCK_DURATION((double)(after.at_ns - before.at_ns) * 1e-9));
    if (*steady &&
        contention_share(&before, &after, thread_count_available()) >= CONTENTION_DISTURBED)
        log_note(
            "other programs are using this machine's processors; the estimate leaves them out");
    if (!*steady)
        log_note(
            "calibration was disturbed: timings differ by more than a tenth, as other programs are using this machine; "
            "the next run times it again");
    return GT_OK;
}

enum gt_status session_rates_calibrate(struct session *session)
{
    bool steady = true;
    rates_recall(session);
    const bool is_moving = session->plan->host_bytes > 0 && !session->device.info.host_memory;
    if (session->timing.is_timed && (!is_moving || session->timing.rates.link_timed))
        return GT_OK;
    if (!session->timing.is_timed) {
        const enum gt_status status = ops_measure(session, &steady);
        session->timing.is_tiny = status == GT_NO_FIT;
        if (status != GT_OK)
            return status == GT_NO_FIT
                       ? GT_OK
                       : status; /* the arena is too small, so the forecast does without timings */
    }
    if (is_moving)
        TRY(link_measure(session));
    struct plan_rates alone = session->timing.rates; /* the next run may be undisturbed */
    alone.uncertainty = PLAN_TIMED_UNCERTAINTY;
    alone.disturbed = false;
    if (steady)
        calibrate_store(KEY_OF(session), &alone);
    return GT_OK;
}

void session_rates_correct(struct session *session, double modelled, double measured)
{
    const double ratio = modelled / measured;
    if (!session->timing.is_timed || (ratio < OUTDATED_RATIO && ratio > 1.0 / OUTDATED_RATIO))
        return;
    calibrate_scale(&session->timing.rates, ratio);
    session->timing.rates.uncertainty = PLAN_TIMED_UNCERTAINTY;
    session->timing.rates.disturbed = false;
    calibrate_store(KEY_OF(session), &session->timing.rates);
}

/* Time and memory for measuring the rate of products.  On a cpu the products are small, so that two
 * of them fit into the time; a plan, which is printed at once, gets less time than a run.  On a
 * card the products fill the card. */
static const struct {
    double seconds;
    uint64_t bytes;
} peak_limits[2][2] = {/* by host_memory, and whether it is a plan */
                       {{0.15, (uint64_t)512 << 20}, {0.05, (uint64_t)128 << 20}},
                       {{0.06, (uint64_t)16 << 20}, {0.02, (uint64_t)4 << 20}}};

/* Returns the memory for timing a plan's products: on a card that other programs use, at most half
 * of the free memory. */
static uint64_t scratch_bytes(const struct session *session)
{
    const bool is_host = session->device.info.host_memory;
    const uint64_t most = peak_limits[is_host][true].bytes,
                   free_bytes = session->device.info.free_bytes;
    return is_host || free_bytes == 0 || free_bytes / 2 > most ? most : free_bytes / 2;
}

static enum gt_status peak_measure(struct session *session, enum dtype dtype, double *out)
{
    struct backend *device = session->device.backend;
    struct address scratch = {.space = SPACE_DEVICE};
    const bool is_plan = session->exec == NULL, is_host = session->device.info.host_memory;
    const double seconds = peak_limits[is_host][is_plan].seconds;
    const enum gt_status status =
        is_plan ? backend_peak_flops(device, dtype, scratch, (size_t)scratch_bytes(session),
                                     seconds, out)
                : exec_peak_flops(session->exec, dtype, peak_limits[is_host][false].bytes, seconds,
                                  out);
    if (status == GT_NO_FIT)
        *out = 0.0; /* the arena is too small, so forecasts and mfu do without */
    return status == GT_NO_FIT ? GT_OK : status;
}

/* Allocates an arena for a plan.  Without room for products the plan is still printed, with the
 * times that are known. */
static enum gt_status scratch_allocate(struct session *session, bool *out)
{
    const struct backend_segment segment = {.space = SPACE_DEVICE,
                                            .size_bytes = scratch_bytes(session)};
    *out = session->device.info.host_memory || segment.size_bytes >= SCRATCH_BYTES_MIN;
    if (*out)
        return backend_arena(session->device.backend, &segment, 1);
    log_note(
        "%s are free on %s, too little to time products; estimates use earlier timings or a nominal device",
        LOG_BYTES(session->device.info.free_bytes), session->device.info.device);
    return GT_OK;
}

/* Measures the rates of products: on a cpu in every dtype, on a card in the run's.  If no op was
 * timed, also measures fp32, in which everything but products runs.  MFU is based on the best rate.
 */
static enum gt_status peaks_measure(struct session *session)
{
    struct session_timing *timing = &session->timing;
    const enum dtype used = session->device.dtype;
    double rate[PLAN_MATRIX_DTYPES] = {0.0};
    bool has_room = true;
    if (!session->exec)
        TRY(scratch_allocate(session, &has_room));
    rates_recall(session);
    for (int dtype = 0; has_room && dtype < PLAN_MATRIX_DTYPES; dtype++) {
        const bool is_other_needed = dtype == DTYPE_F32 && !timing->is_timed;
        if (dtype == (int)used || session->device.info.host_memory || is_other_needed)
            TRY(peak_measure(session, (enum dtype)dtype, &rate[dtype]));
        timing->peak_flops = fmax(timing->peak_flops, rate[dtype]);
    }
    if (timing->is_timed)
        return GT_OK;
    const bool known = rate[used] > 0.0 && rate[DTYPE_F32] > 0.0;
    timing->rates =
        known ? plan_rates_of_peaks(rate[used], rate[DTYPE_F32]) : session_rates_nominal(session);
    if (!known || timing->is_tiny)
        timing->rates.uncertainty = GUESS_FACTOR;
    return GT_OK;
}

/* Widens the uncertainty by the share of the processors that other programs used since `before`,
 * because a run may get no more of them. */
static void disturbance_note(struct session *session, const struct contention *before)
{
    struct plan_rates *rates = &session->timing.rates;
    struct contention now;
    contention_read(&now);
    const double held = contention_share(before, &now, thread_count_available());
    const double factor = rates->uncertainty < 1.0 ? 1.0 + rates->uncertainty : rates->uncertainty;
    if (!session->device.info.host_memory || rates->disturbed || held < CONTENTION_DISTURBED)
        return;
    /* Threads wait for the one that waits for a processor. */
    const double left = 1.0 - fmin(held, HELD_MOST);
    rates->uncertainty = plan_uncertainty_of(factor / (left * left));
    rates->disturbed = true;
}

enum gt_status session_peak_measure(struct session *session)
{
    struct contention before;
    if (session->device.has_profile) {
        session_rates_profile(session);
        return GT_OK;
    }
    contention_read(&before);
    TRY(peaks_measure(session));
    disturbance_note(session, &before);
    rates_tuned(session);
    /* The run's own products may be faster than the one that was timed just now. */
    const double measured = session->timing.rates.flops_per_s[OP_GEMM][session->device.dtype];
    if (session->timing.is_timed && measured > session->timing.peak_flops)
        session->timing.peak_flops = measured;
    return GT_OK;
}
