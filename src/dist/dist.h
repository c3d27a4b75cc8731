/* Ranks: processes of one machine that train one model together.
 *
 * dist_launch() forks them; they share a block of memory, in which they meet, exchange words and leave pieces of
 * gradients.  The process that started them only watches: if a rank dies, fails or gives no sign of life, all ranks
 * end.  Nothing here knows what the words and pieces mean.
 */
#ifndef GPT_TRAIN_DIST_DIST_H
#define GPT_TRAIN_DIST_DIST_H

#include <stdatomic.h>

#include "base/status.h"

#define DIST_RANKS_MAX 64
#define DIST_WORDS_MAX 64
#define DIST_PIECE_FLOATS ((int64_t)1 << 19)
#define DIST_HEADER_BYTES ((size_t)128 << 10)
#define DIST_SUMS 2

struct dist_shared;

/* Returns the bytes that the ranks share. */
static inline size_t dist_shared_bytes(int64_t ranks)
{
    return DIST_HEADER_BYTES + (size_t)((ranks + DIST_SUMS) * DIST_PIECE_FLOATS) * sizeof(float);
}

/* What a rank knows of the others. */
struct dist {
    int32_t rank, ranks;
    uint64_t meetings;     /* so far */
    int stop;              /* the signal that ends the run, or 0; since the last dist_gather(), on all ranks */
    atomic_int *stop_word; /* where a signal handler stores the signal that is to end the run */
    struct dist_shared *shared;
};

/* Forks the ranks.  In each of them, sets *out and returns false.  In the process that called it, returns true once all
 * of them have ended, and sets *exit_status: the first failed rank's, or 1 if a signal ended a rank or one gave no sign
 * of life for `timeout_s` seconds.  Rank 0 has the terminal.  Of the others only the error that ended the run is shown.
 * Call it before the process has threads. */
bool dist_launch(int32_t ranks, int64_t timeout_s, struct dist *out, int *exit_status);

/* Waits until all ranks have called it as often as this one. */
void dist_meet(struct dist *dist);
/* Sets all[r * count + i] to mine[i] of rank r, for count <= DIST_WORDS_MAX, on all ranks. */
void dist_gather(struct dist *dist, const double *mine, int32_t count, double *all);
/* Returns a buffer of DIST_PIECE_FLOATS that all ranks see: that of a rank, or DIST_SUMS more. */
float *dist_piece(const struct dist *dist, int32_t index);

/* Tells the watching process that this rank is alive, and in `what`: a string literal, or NULL if that is unknown. */
void dist_sign(const struct dist *dist, const char *what);
void dist_iter_set(const struct dist *dist, int64_t iter);

#endif
