/* What a run used: the time of its ops, and the arena at its peak.
 *
 * The plan determines the bytes before the run; times are those that exec measured with --profile.
 */
#include "train/use_log.h"

#include "backend/backend_call.h"
#include "backend/backend_holders.h"

void use_log_ops(const struct session *session)
{
    struct exec_timing timing;
    double total = 0.0;
    exec_timing_get(session->exec, &timing);
    for (int kind = 0; kind < OP_KIND_COUNT; kind++)
        total += timing.seconds[kind];
    log_result("%-20s %10s %10s %7s %10s %8s", "op", "runs", "seconds", "share", "GFLOP/s", "GB/s");
    for (int kind = 0; kind < OP_KIND_COUNT; kind++) {
        double seconds = timing.seconds[kind];
        if (timing.runs[kind] == 0 || seconds <= 0.0)
            continue;
        log_result("%-20s %10" PRIu64 " %10.3f %5.1f %% %10.1f %8.1f",
                   op_declaration((enum op_kind)kind)->name, timing.runs[kind], seconds,
                   100.0 * seconds / total, timing.flops[kind] / seconds / 1e9,
                   timing.bytes[kind] / seconds / 1e9);
    }
    if (timing.whole_seconds > 0.0)
        log_result(
            "programs as they are replayed: %.3f s, the sum of their ops %.3f s, gaps %.1f %%",
            timing.whole_seconds, timing.ops_seconds,
            100.0 * (timing.whole_seconds - timing.ops_seconds) / timing.whole_seconds);
}

void use_log_memory(const struct session *session)
{
    const struct plan *plan = session->plan;
    struct backend *device = session->device.backend;
    struct backend_info info;
    char line[512] = "";
    /* The plan determines these figures before the run, and they are also the most that was ever
     * live at once. */
    for (int c = 0; c < CATEGORY_COUNT; c++) {
        const size_t used = strlen(line);
        if (plan->category_bytes[c] > 0)
            snprintf(line + used, sizeof line - used, "%s%s %s", used > 0 ? ", " : "",
                     tensor_category_name((enum tensor_category)c),
                     LOG_BYTES(plan->category_bytes[c]));
    }
    log_result("memory at the peak (%s): %s", device->ops->name, line);
    if (backend_info(device, &info) == GT_OK)
        log_result("memory of the device (%s): %s of %s are free; other processes: %s",
                   device->ops->name, LOG_BYTES(info.free_bytes), LOG_BYTES(info.total_bytes),
                   BACKEND_HOLDERS_KNOWN(device));
}
