/* Ranks: processes that train one model together.
 *
 * Ranks move bytes between each other; all that they do together is made of such moves, here and
 * above.  Nothing here knows what the bytes mean.  dist_launch() forks ranks on one machine, which
 * move bytes through memory that they share (comm_shm.c).  If MPI's launcher started the ranks,
 * each calls dist_join() (comm_module.c and comm_mpi.c). If a rank dies, fails or gives no sign of
 * life, all ranks end.
 */
#ifndef GPT_TRAIN_DIST_DIST_H
#define GPT_TRAIN_DIST_DIST_H

#include <stdatomic.h>

#include "base/module.h"
#include "base/status.h"

#define DIST_RANKS_MAX 64
#define DIST_MOVES_MAX 1024 /* in progress at a time */
#define DIST_ERROR_BYTES 512
#define DIST_NAME_BYTES 64
#define DIST_HEADER_BYTES ((size_t)640 << 10)
#define DIST_INBOX_BYTES ((size_t)3 << 20)

/* Returns the bytes that ranks of one machine share: each has room for what is on its way to it. */
static inline size_t dist_shared_bytes(int64_t ranks)
{
    return DIST_HEADER_BYTES + (size_t)ranks * DIST_INBOX_BYTES;
}

/* Bytes to a peer, or from it.  Their owner must not touch them until dist_wait() has returned. */
struct dist_move {
    int32_t peer;
    bool receive;
    atomic_bool done;
    void *data;
    size_t bytes; /* at most 1 GiB */
};

/* What others see of a rank.  Aligned to avoid false sharing. */
struct dist_seat {
    _Alignas(128) atomic_uint_fast64_t signs;
    atomic_llong iter;
    _Atomic(const char *) what;
    atomic_llong waits_since_ns; /* for a peer; 0: it does not wait */
    atomic_int waits_for;        /* that peer */
    atomic_int code; /* the exit status with which it ends all ranks, or 0; with MPI only */
    char error[DIST_ERROR_BYTES]; /* its last error */
};

/* What a rank knows of the others. */
struct dist {
    int32_t rank, ranks;
    int32_t local_rank, local_ranks; /* among those of this machine */
    atomic_llong timeout_s; /* after which all ranks end, without a sign of life or NCCL's answer */
    atomic_bool limited;    /* this rank is within NCCL */
    int stop; /* the signal that ends the run, or 0; the same on all ranks since the last
                 dist_gather() */
    atomic_int *stop_word;  /* where a signal handler stores the signal that is to end the run */
    struct dist_seat *seat; /* of each rank */
    struct dist_shared *shared;
    char carrier[DIST_NAME_BYTES];              /* "Open MPI v4.1.4" */
    char host[DIST_RANKS_MAX][DIST_NAME_BYTES]; /* of each rank, if there can be several hosts */
    bool (*progress)(struct dist *dist); /* carries moves on; returns true if it got further */
    void (*close)(struct dist *dist, int code); /* ends this rank, or all if `code` is not 0; NULL:
                                                   the process that forked it does */
    int (*tick)(struct dist *dist); /* called now and then; returns the status with which all must
                                       end, or 0 */
    atomic_uint_fast64_t done;      /* moves before this one are done */
    atomic_uint_fast64_t started;   /* moves before this one are started */
    struct dist_move moves[DIST_MOVES_MAX];
};

/* Starts a move.  Both ranks must start the moves from one to the other in the same order and with
 * the same sizes.  If too many moves are in progress, waits for the oldest. */
void dist_send(struct dist *dist, int32_t peer, const void *data, size_t bytes);
void dist_receive(struct dist *dist, int32_t peer, void *data, size_t bytes);
/* Waits until the moves whose numbers are below `until` are done.  `until` is a value that
 * dist->started had. */
void dist_wait(struct dist *dist, uint64_t until);
/* Sets all[r * bytes ...] to mine[...] of rank r, on all ranks, which also agree on dist->stop. */
void dist_gather(struct dist *dist, const void *mine, size_t bytes, void *all);

/* Gives a sign of life, with what the rank does: a string literal, or NULL if that is unknown. */
void dist_sign(const struct dist *dist, const char *what);
/* Ends all ranks because NCCL has not answered for `timeout_s` seconds. */
_Noreturn void dist_unanswered(struct dist *dist);
void dist_iter_set(const struct dist *dist, int64_t iter);
/* For ranks other than the first: from now on the last error is kept in the rank's seat, and
 * nothing is printed. */
void dist_silence(const struct dist *dist);

/* ---- for comm_*.c ---- */

/* Time for rank 0 to print its own error, if all ranks have the same one. */
#define DIST_GRACE_NS INT64_C(2000000000)

/* What a process that watches ranks knows: which gives no sign of life, and which is late. */
struct dist_watch {
    int64_t looked_ns; /* when dist_watch_silent() was last called */
    struct {
        uint64_t signs;
        int64_t silent_ns;
        bool ended; /* it is no longer watched */
        bool late;  /* it has been reported */
    } rank[DIST_RANKS_MAX];
};

/* Returns a rank from `begin` on and below `end` that has given no sign of life for
 * dist->timeout_s, or -1.  Call it a few times per second; time in which this process itself was
 * stopped does not count.  Logs a note, once per rank, if another waits for it for long. */
int32_t dist_watch_silent(struct dist_watch *watch, const struct dist *dist, int32_t begin,
                          int32_t end);
/* Logs that a rank "was ended by signal" 9, or the like, where it was last seen, and that all end.
 * Returns 1. */
int dist_watch_end(const struct dist *dist, int32_t rank, const char *how, int64_t number,
                   const char *unit);

/* MPI has no common binary interface, so all code that needs its header is in a module
 * (comm_mpi.c).  The site's mpicc builds it, and it calls the program only through struct dist. */
struct comm_module {
    struct module_head head;
    /* Makes this process one of MPI's ranks; a thread then carries moves and calls dist->tick().
     * Returns false if MPI cannot be started. */
    bool (*open)(struct dist *dist);
};

#define COMM_MODULE_ABI ((uint64_t)sizeof(struct dist) << 16 ^ sizeof(struct dist_seat))

#endif
