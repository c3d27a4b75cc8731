/* The memory of a session's machine, and the share of it that a rank may use. */
#ifndef GPT_TRAIN_SESSION_SESSION_BUDGET_H
#define GPT_TRAIN_SESSION_SESSION_BUDGET_H

#include "session/session.h"

/* Return the memory_budget that an arena of `arena_bytes` on each rank needs, and the part of it
 * that each process needs itself: SESSION_HEADROOM_BYTES and its share of what ranks exchange; 0 if
 * the device has its own memory. */
uint64_t session_budget_of(const struct session *session, uint64_t arena_bytes);
uint64_t session_headroom_bytes(const struct session *session);
/* Returns how many ranks share the device's memory: all ranks of the machine if it is the host's.
 */
uint64_t session_sharers(const struct session *session);
/* Returns this rank's share of the machine's budgets, as far as its arenas may use it. */
struct plan_share session_share(const struct session *session);
/* Returns the default budget if `free_bytes` are free: it leaves a margin for other programs. */
uint64_t session_free_budget(uint64_t free_bytes);

#endif
