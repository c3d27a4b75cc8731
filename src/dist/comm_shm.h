/* Ranks in memory that they share: forks of one process, on one machine. */
#ifndef GPT_TRAIN_DIST_COMM_SHM_H
#define GPT_TRAIN_DIST_COMM_SHM_H

#include "dist/dist.h"

/* Forks the ranks.  In each of them, sets *out and returns false.  In the process that called it,
 * returns true once all of them have ended, and sets *exit_status: the first failed rank's, or 1 if
 * a signal ended a rank or one gave no sign of life for `timeout_s` seconds.  Rank 0 has the
 * terminal.  Of the other ranks, only the error that ended the run is shown.  Call it before the
 * process has threads. */
bool dist_launch(int32_t ranks, int64_t timeout_s, struct dist *out, int *exit_status);

#endif
