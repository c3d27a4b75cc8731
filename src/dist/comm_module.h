/* Ranks that MPI's launcher started: this process is one of them.
 *
 * MPI has no common binary interface, so that all that needs its header is in a module (comm_mpi.c), which the site's
 * mpicc makes and which calls nothing of the program but through struct dist.
 */
#ifndef GPT_TRAIN_DIST_COMM_MODULE_H
#define GPT_TRAIN_DIST_COMM_MODULE_H

#include "base/module.h"
#include "dist/dist_watch.h"

struct comm_module {
    struct module_head head;
    /* Makes this process one of MPI's ranks; a thread then carries moves and calls dist->tick().  Returns false if MPI
     * cannot be started. */
    bool (*open)(struct dist *dist);
};

#define COMM_MODULE_ABI ((uint64_t)sizeof(struct dist) << 16 ^ sizeof(struct dist_seat))

/* Makes this process one of the `tasks` that a launcher started.  A rank but the first prints nothing from then on.
 * Errors, told by the first task alone: GT_UNSUPPORTED. */
enum gt_status dist_join(int64_t tasks, bool first, struct dist *out);
/* Sets how long a rank may be silent. */
/* Ends a rank that dist_join() made: together with the others if `code` is 0, or `stopped` says that a signal ends all
 * of them; else it ends all, and the process with it. */
void dist_leave(struct dist *dist, int code, bool stopped);

#endif
