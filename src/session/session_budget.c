/* The memory that a session may use.
 *
 * A machine's budget is for all processes of a run; each rank that uses the device has an equal
 * share of it.  The arena gets that share less the needs of the backend itself and, if the device's
 * memory is the host's, of the process. No function here reads a file, a clock or a device.
 */
#include "session/session_budget.h"

#include "base/size.h"

/* Default margin for other programs, without a memory_budget: a twentieth of the free memory, at
 * least 256 MiB. */
#define BUDGET_MARGIN_DIVISOR 20
#define BUDGET_MARGIN_BYTES ((uint64_t)256 << 20)
/* Cap of that margin, so that less free memory never means a larger budget. */
#define BUDGET_MARGIN_DIVISOR_MAX 2

uint64_t session_free_budget(uint64_t free_bytes)
{
    const uint64_t part = free_bytes / BUDGET_MARGIN_DIVISOR,
                   most = free_bytes / BUDGET_MARGIN_DIVISOR_MAX;
    const uint64_t least = most < BUDGET_MARGIN_BYTES ? most : BUDGET_MARGIN_BYTES;
    return free_bytes - (part > least ? part : least);
}

uint64_t session_headroom_bytes(const struct session *session)
{
    const int64_t ranks = session->config->ranks;
    const uint64_t exchange =
        ranks > 1 ? size_ceil_div((int64_t)dist_shared_bytes(ranks), ranks) : 0;
    return session->device.info.host_memory ? SESSION_HEADROOM_BYTES + exchange : 0;
}

uint64_t session_sharers(const struct session *session)
{
    const int32_t sharers =
        session->device.info.host_memory ? session->config->local_ranks : session->device.sharers;
    return (uint64_t)max_i64(sharers, 1);
}

/* Returns the part of a rank's share that its arena may not use. */
static uint64_t overhead_bytes(const struct session *session)
{
    return session->device.info.context_bytes + session_headroom_bytes(session);
}

uint64_t session_budget_of(const struct session *session, uint64_t arena_bytes)
{
    return (arena_bytes + overhead_bytes(session)) * session_sharers(session);
}

struct plan_share session_share(const struct session *session)
{
    const uint64_t all = session->device.machine_budget_bytes / session_sharers(session);
    const uint64_t overhead = overhead_bytes(session);
    return (struct plan_share){.device_bytes = all > overhead ? all - overhead : 0,
                               .host_bytes = session->device.host_share_bytes};
}
