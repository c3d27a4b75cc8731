/* The arena's share of the device's memory, and the refusal of plans that need more.
 *
 * The arena gets the budget less the needs of the backend itself and, if the device's memory is the host's, of the
 * process.
 */
#include "train/session_budget.h"

#include <config.h>
#include <string.h>

#include "base/log.h"
#include "base/size.h"

/* A build with --enable-debug puts a guard band behind every tensor. */
#ifdef GT_DEBUG
#define DEBUG_GUARD_BYTES 64
#else
#define DEBUG_GUARD_BYTES 0
#endif

uint64_t session_headroom_bytes(const struct session *session)
{
    return session->device.info.host_memory ? SESSION_HEADROOM_BYTES : 0;
}

/* Returns the part of the budget that the arena may not take. */
static uint64_t beside_bytes(const struct session *session)
{
    return session->device.info.context_bytes + session_headroom_bytes(session);
}

uint64_t session_budget_of(const struct session *session, uint64_t arena_bytes)
{
    return arena_bytes + beside_bytes(session);
}

uint64_t session_arena_budget(const struct session *session)
{
    uint64_t beside = beside_bytes(session);
    return session->device.budget_bytes > beside ? session->device.budget_bytes - beside : 0;
}

enum gt_status session_refuse(const struct session *session, uint64_t arena_bytes)
{
    char least[24], have[24], holders[BACKEND_HOLDERS_TEXT_MAX];
    const char *needed = search_budget_text(least, session_budget_of(session, arena_bytes));
    const char *unit = needed + strspn(needed, "0123456789.");
    const int digits = (int)(unit - needed);
    log_bytes(have, (double)session->device.budget_bytes);
    if (session->config->memory_budget[0] != '\0') {
        log_error("not enough memory: this run needs at least %.*s %s, memory_budget allows %s", digits, needed, unit,
                  have);
        return GT_NO_FIT;
    }
    backend_holders_read(holders, session->device.backend);
    log_error("not enough memory: this run needs at least %.*s %s, %s has %s available%s%s", digits, needed, unit,
              session->device.info.device, have, holders[0] != '\0' ? "; others hold most: " : "", holders);
    return GT_NO_FIT;
}

void session_plan_options(const struct session *session, struct plan_options *out)
{
    *out = (struct plan_options){
        .device = session->device.backend,
        .info = &session->device.info,
        .alignment_bytes = session->device.info.alignment_bytes,
        .largest_segment_bytes = session->device.info.largest_allocation_bytes,
        .guard_bytes = (uint32_t)size_round_up(DEBUG_GUARD_BYTES, session->device.info.alignment_bytes),
    };
}

enum gt_status session_fits(const struct session *session)
{
    if (session->plan->arena_bytes <= session_arena_budget(session))
        return GT_OK;
    return session_refuse(session, session->plan->arena_bytes);
}
