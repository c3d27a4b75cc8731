/* Ranks that MPI's launcher started. */
#ifndef GPT_TRAIN_DIST_COMM_MODULE_H
#define GPT_TRAIN_DIST_COMM_MODULE_H

#include "dist/dist.h"

/* Makes this process one of the `tasks` that a launcher started.  From then on, ranks other than
 * the first print nothing.  Errors, logged by the first task alone: GT_UNSUPPORTED. */
enum gt_status dist_join(int64_t tasks, bool first, struct dist *out);
/* Ends a rank that dist_join() made.  If `code` is 0, or a signal ends all ranks (`stopped`), it
 * ends together with the others; otherwise it ends all of them, and its process. */
void dist_leave(struct dist *dist, int code, bool stopped);

#endif
