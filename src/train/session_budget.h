/* The memory budget of a session: the arena's share of it, and the refusal of plans that exceed it. */
#ifndef GPT_TRAIN_TRAIN_SESSION_BUDGET_H
#define GPT_TRAIN_TRAIN_SESSION_BUDGET_H

#include "train/session.h"

/* Set the options with which plans for this session's device are made, and return the arena's share of the budget. */
void session_plan_options(const struct session *session, struct plan_options *out);
uint64_t session_arena_budget(const struct session *session);
/* Returns the memory_budget that an arena of `arena_bytes` needs. */
uint64_t session_budget_of(const struct session *session, uint64_t arena_bytes);
/* Returns GT_OK when the plan fits the budget; otherwise GT_NO_FIT, logged. */
enum gt_status session_fits(const struct session *session);
/* Returns the part of the budget reserved for the process itself: SESSION_HEADROOM_BYTES, or 0 if the device has its
 * own memory. */
uint64_t session_headroom_bytes(const struct session *session);
/* Logs how much memory a plan with an arena of `arena_bytes` needs and how much is available, with the other processes
 * that use the device if free memory is the limit.  Returns GT_NO_FIT. */
enum gt_status session_refuse(const struct session *session, uint64_t arena_bytes);

#endif
