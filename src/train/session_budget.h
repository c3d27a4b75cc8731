/* The memory budget of a session: what the arena may take of it, and plans made for it. */
#ifndef GPT_TRAIN_TRAIN_SESSION_BUDGET_H
#define GPT_TRAIN_TRAIN_SESSION_BUDGET_H

#include "train/session.h"

/* How plans of this session's device are made, and what the arena may take of the budget. */
void session_plan_options(const struct session *session, struct plan_options *out);
uint64_t session_arena_budget(const struct session *session);
/* The memory_budget that an arena of so many bytes needs. */
uint64_t session_budget_of(const struct session *session, uint64_t arena_bytes);
/* Whether the plan fits the budget; else GT_NO_FIT, logged. */
enum gt_status session_fits(const struct session *session);
/* What is left of the budget for the process itself: SESSION_HEADROOM_BYTES, nothing where the device has its own memory. */
uint64_t session_headroom_bytes(const struct session *session);
/* Logs what a plan of so many bytes needs and what there is, with the other processes that use the device where free
 * memory is the limit.  Returns GT_NO_FIT. */
enum gt_status session_refuse(const struct session *session, uint64_t arena_bytes);

#endif
