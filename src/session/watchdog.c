/* Ends a run whose device no longer responds.
 *
 * The record of the device numbers its calls.  A thread checks whether the pending call is still
 * the one of earlier checks.  A thread that hangs inside a driver can be neither woken nor
 * cancelled, so the only way out is to end the process: the last save is complete, and the lock on
 * out_dir ends with the process.  It watches neither files nor the program's own loops.
 */
#include "session/watchdog.h"

#include <unistd.h>

#include "base/clock.h"

#define CHECKS_PER_LIMIT 8

static void pending_check(void *context)
{
    struct watchdog *watchdog = context;
    const int64_t now_ns = clock_monotonic_ns(), gap_ns = now_ns - watchdog->checked_ns;
    const int64_t interval_ns = watchdog->seconds * INT64_C(1000000000) / CHECKS_PER_LIMIT;
    /* A late check does not mean that the device was slow: the process was stopped (Ctrl-Z,
     * SIGSTOP) or got no time. Anything beyond an interval is not counted. */
    if (gap_ns > 2 * interval_ns)
        watchdog->since_ns += gap_ns - interval_ns;
    watchdog->checked_ns = now_ns;
    const char *call = atomic_load(&watchdog->record->call);
    const uint64_t number = atomic_load(&watchdog->record->number);
    if (call == NULL || number != watchdog->number) {
        watchdog->number = call != NULL ? number : 0;
        watchdog->since_ns = now_ns;
        return;
    }
    if (now_ns - watchdog->since_ns < watchdog->seconds * INT64_C(1000000000))
        return;
    const int kind = atomic_load(&watchdog->record->op);
    log_error("%s has not answered for %" PRId64
              " s (waiting for %s%s%s); run ended, last checkpoint in %s unchanged",
              watchdog->device, watchdog->seconds, call, kind >= 0 ? " of op " : "",
              kind >= 0 ? op_declaration((enum op_kind)kind)->name : "", watchdog->out_dir);
    _exit(status_exit_code(GT_DEVICE)); /* the main thread is inside the driver and cannot return */
}

enum gt_status watchdog_start(struct watchdog *watchdog, struct hostmem *mem,
                              struct backend *device, const char *out_dir, int64_t seconds)
{
    const int64_t now_ns = clock_monotonic_ns();
    *watchdog = (struct watchdog){.record = device->record,
                                  .device = device->ops->name,
                                  .out_dir = out_dir,
                                  .seconds = seconds,
                                  .since_ns = now_ns,
                                  .checked_ns = now_ns};
    if (seconds == 0)
        return GT_OK;
    return ticker_start(mem, (double)seconds / (double)CHECKS_PER_LIMIT, pending_check, watchdog,
                        &watchdog->ticker);
}
