/* Ranks of one run: they compute parts of the same updates and batches of the same evaluations, and
 * all of them make every update.  Rank 0 has the terminal and the files of the run.  With one rank,
 * `dist` is NULL everywhere. */
#ifndef GPT_TRAIN_TRAIN_RANKS_H
#define GPT_TRAIN_TRAIN_RANKS_H

#include "base/thread.h"
#include "session/session.h"

/* Returns true for the rank that prints and writes. */
static inline bool ranks_first(const struct dist *dist)
{
    return dist == NULL || dist->rank == 0;
}

/* Sets all[r * count + i] to mine[i] of rank r on all ranks, and makes stop_requested() the same on
 * all of them. */
void ranks_gather(struct dist *dist, const double *mine, int32_t count, double *all);
/* Runs the update; with several ranks, each updates the elements whose states it has, and receives
 * the other new weights.  Errors: the device's. */
enum gt_status ranks_update(const struct session *session);
/* Refuses ranks that differ in builds, keys, data (whose digests are `data`) or checkpoints
 * (iteration and checksum), and pairs of ranks between which bytes change.  Prints a line per rank.
 * Joins the devices, where they exchange bytes themselves.  Uses the staging buffer.  Errors:
 * GT_USAGE, GT_DEVICE. */
enum gt_status ranks_handshake(struct session *session, const char *const data[static 2],
                               int64_t iter, uint32_t weights);
/* Returns true if all ranks divide updates and evaluations in the same way, as ranks with unequal
 * cards may not; sets the smallest sizes of all in *least. */
bool ranks_plans_alike(const struct session *session, struct plan_choice *least);
/* Checks that all ranks do, with the same dtypes.  Errors: GT_UNSUPPORTED. */
enum gt_status ranks_plan_check(const struct session *session);
/* Returns true if this rank computes micro-step `k` of an update. */
bool ranks_computes(const struct session *session, int32_t k);
/* Sets the loss sums of the micro-steps that other ranks computed. */
void ranks_losses_gather(const struct session *session, float *loss_sums);
/* The budgets of rank 0: of its machine's device memory, and each rank's share of the host's. */
struct ranks_budgets {
    uint64_t machine, host_share;
};
/* Rank 0 calls it once it has found nothing to refuse; the others call it before they open
 * anything, and wait.  Sets the budgets to those of rank 0, so that all make the same plan. */
void ranks_budgets_share(struct dist *dist, struct ranks_budgets *budgets);

/* The signs of life of a rank, with the op in progress: a ticker calls ranks_sign() with a struct
 * ranks_life. */
#define RANKS_SIGN_SECONDS 0.25
struct ranks_life {
    struct dist *dist;
    int64_t limited;                     /* signs given since this rank entered NCCL */
    const struct backend_record *record; /* of the device's calls */
    struct ticker *ticker;               /* NULL: there is one rank */
};
void ranks_sign(void *context);
/* Makes an open session that of a rank, with rank 0's budgets if it is on the same machine, and
 * begins the rank's signs of life.  `dist` may be NULL.  `life` must not move before
 * ticker_stop(life->ticker).  Errors: GT_NO_MEMORY, GT_FAILURE. */
enum gt_status ranks_join(struct ranks_life *life, struct session *session, struct dist *dist,
                          const struct ranks_budgets *budgets);

#endif
