/* Ranks that MPI's launcher started. */
#ifndef GPT_TRAIN_DIST_COMM_MODULE_H
#define GPT_TRAIN_DIST_COMM_MODULE_H

#include "dist/dist.h"

/* Makes this process one of the `tasks` that a launcher started.  A rank but the first prints
 * nothing from then on. Errors, logged by the first task alone: GT_UNSUPPORTED. */
enum gt_status dist_join(int64_t tasks, bool first, struct dist *out);
/* Ends a rank that dist_join() made: together with the others if `code` is 0, or `stopped` says
 * that a signal ends all of them; else it ends all, and the process with it. */
void dist_leave(struct dist *dist, int code, bool stopped);

#endif
