/* Proves a plan by replay. */
#ifndef GPT_TRAIN_PLAN_PLAN_VERIFY_H
#define GPT_TRAIN_PLAN_PLAN_VERIFY_H

#include "plan/plan.h"

/* Proves the plan by another method than the one that made it: replays each program op by op over a
 * map of who owns which bytes, and checks that every operand still holds what its last writer
 * wrote, that inputs and persistent tensors are never overwritten, that workspaces touch nothing
 * live, and that everything lies aligned inside the arena.  Logs the first violation.  Independent
 * of plan_create()'s lifetimes. */
bool plan_verify(const struct plan *plan);

#endif
