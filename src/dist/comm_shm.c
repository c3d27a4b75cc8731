/* Ranks in memory that they share: forks of one process, on one machine.
 *
 * The block is mapped before the fork, so it has no name and ends with the last process.  Each rank
 * has a seat in it, and each pair of ranks a ring for either direction: the sender writes into it,
 * the receiver reads from it, and both do so only while they wait, or when they start a move.  All
 * ranks are forks of one process, so a string literal has the same address in each.
 *
 * Ranks never time out themselves.  The process that started them checks every POLL_NS whether they
 * have ended, and whether they still give signs of life.  If it dies, the kernel ends them (on
 * Linux).
 */
#include <errno.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif

#include "dist/comm_shm.h"

#include "base/clock.h"
#include "base/size.h"

#define POLL_NS 20000000
/* Bytes that are copied at once: few enough that the receiver finds them in the cache. */
#define COPY_BYTES ((size_t)128 << 10)

/* Counts bytes from the start of the run. */
struct ring {
    _Alignas(64) atomic_uint_fast64_t written;
    _Alignas(64) atomic_uint_fast64_t read;
};

struct dist_shared {
    atomic_int stop; /* a signal that a process received, or 0 */
    struct dist_seat seat[DIST_RANKS_MAX];
    struct ring ring[DIST_RANKS_MAX][DIST_RANKS_MAX]; /* [receiver][sender] */
};

_Static_assert(sizeof(struct dist_shared) <= DIST_HEADER_BYTES, "all seats and rings");

/* ---- a rank ---- */

/* Copies the bytes that the ring has, or has room for.  Returns true if there were any. */
static bool ring_copy(const struct dist *dist, struct dist_move *move)
{
    const int32_t to = move->receive ? dist->rank : move->peer,
                  from = move->receive ? move->peer : dist->rank;
    const size_t bytes = DIST_INBOX_BYTES / (size_t)dist->ranks;
    struct ring *ring = &dist->shared->ring[to][from];
    char *data = (char *)dist->shared + DIST_HEADER_BYTES + (size_t)to * DIST_INBOX_BYTES +
                 (size_t)from * bytes;
    const uint64_t written = atomic_load(&ring->written), read = atomic_load(&ring->read);
    const size_t at = (size_t)((move->receive ? read : written) % bytes);
    size_t count = (size_t)(move->receive ? written - read : bytes - (written - read));
    count = size_min(size_min(count, bytes - at), size_min(move->bytes, COPY_BYTES));
    if (move->receive)
        memcpy(move->data, data + at, count);
    else
        memcpy(data + at, move->data, count);
    atomic_fetch_add(move->receive ? &ring->read : &ring->written, count);
    move->data = (char *)move->data + count;
    move->bytes -= count;
    return count > 0;
}

static bool shm_progress(struct dist *dist)
{
    uint64_t busy[2] = {0}; /* peers whose earlier move comes first */
    bool any = false;
    for (uint64_t i = dist->done; i < dist->started; i++) {
        struct dist_move *move = &dist->moves[i % DIST_MOVES_MAX];
        const uint64_t peer = UINT64_C(1) << move->peer;
        if (move->bytes > 0 && (busy[move->receive] & peer) == 0)
            any = ring_copy(dist, move) || any;
        if (move->bytes > 0)
            busy[move->receive] |= peer;
        else
            atomic_store(&move->done, true);
    }
    return any;
}

/* Makes a rank move bytes through `shared`, which all ranks map: dist_shared_bytes() of zeros. */
static void dist_shared_set(struct dist *dist, struct dist_shared *shared)
{
    dist->shared = shared;
    dist->stop_word = &shared->stop;
    dist->seat = shared->seat;
    dist->progress = shm_progress;
}

static void rank_begin(struct dist *dist, int32_t rank, pid_t parent)
{
    dist->rank = dist->local_rank = rank;
#ifdef __linux__
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
#endif
    if (getppid() != parent)
        _exit(1);
    if (rank > 0)
        dist_silence(dist);
}

/* ---- the process that started them ---- */

struct child {
    pid_t pid;
    bool ended;
    int code;   /* exit status */
    int signal; /* that ended it, or 0 */
};

struct launch {
    struct dist *dist;
    struct child child[DIST_RANKS_MAX];
    struct dist_watch watch;
    bool received;     /* this process received a signal */
    int64_t failed_ns; /* when the first rank that failed had ended, or 0 */
    int32_t failed;    /* that rank */
};

static void reap(struct launch *launch, int options)
{
    for (int32_t r = 0; r < launch->dist->ranks; r++) {
        struct child *child = &launch->child[r];
        int status;
        if (child->ended || waitpid(child->pid, &status, options) != child->pid)
            continue;
        child->ended = launch->watch.rank[r].ended = true;
        child->signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
        child->code = WIFSIGNALED(status) ? 128 + child->signal : WEXITSTATUS(status);
        if (child->code != 0 && launch->failed_ns == 0) {
            launch->failed_ns = clock_monotonic_ns();
            launch->failed = r;
        }
    }
}

static void kill_all(struct launch *launch)
{
    for (int32_t r = 0; r < launch->dist->ranks; r++)
        if (!launch->child[r].ended)
            (void)kill(launch->child[r].pid, SIGKILL);
    reap(launch, 0);
}

/* Passes the first signal that this process received to the ranks; a second one ends everything.
 * Returns the signal that is to end the run, or 0. */
static int signals_collect(struct launch *launch, const sigset_t *set)
{
    sigset_t pending;
    int number;
    for (int i = 1; sigpending(&pending) == 0 && i < NSIG; i++) {
        if (sigismember(set, i) != 1 || sigismember(&pending, i) != 1 || sigwait(set, &number) != 0)
            continue;
        if (launch->received) {
            kill_all(launch);
            _exit(128 + number);
        }
        launch->received = true;
        atomic_store(&launch->dist->shared->stop, number);
    }
    return atomic_load(&launch->dist->shared->stop);
}

/* Ends all ranks because of one, with one line. */
static int end_all(struct launch *launch, int32_t rank, const char *how, int64_t number,
                   const char *unit)
{
    kill_all(launch);
    return dist_watch_end(launch->dist, rank, how, number, unit);
}

/* Returns -1 while the ranks run, then the exit status.  If rank 0 fails too, it has printed its
 * own error. */
static int look(struct launch *launch, const sigset_t *set)
{
    bool all = true;
    reap(launch, WNOHANG);
    const struct child *failed = &launch->child[launch->failed], *first = &launch->child[0];
    const int stop = signals_collect(launch, set);
    for (int32_t r = 0; r < launch->dist->ranks; r++)
        all = all && launch->child[r].ended;
    if (launch->failed_ns == 0) {
        const int32_t silent =
            all ? -1 : dist_watch_silent(&launch->watch, launch->dist, 0, launch->dist->ranks);
        if (silent >= 0)
            return end_all(launch, silent, "has given no sign of life for", launch->dist->timeout_s,
                           " s");
        return all ? 0 : -1;
    }
    if (failed->signal != 0 && failed->signal != stop)
        return end_all(launch, launch->failed, "was ended by signal", failed->signal, "");
    const bool late =
        failed->code != 128 + stop && clock_monotonic_ns() - launch->failed_ns > DIST_GRACE_NS;
    if (!first->ended && !late)
        return -1;
    const bool has_reported = first->ended && first->code != 0 && first->signal == 0;
    const int code = has_reported ? first->code : failed->code;
    kill_all(launch);
    if (!has_reported)
        log_error("rank %" PRId32 ": %s", launch->failed,
                  launch->dist->shared->seat[launch->failed].error);
    return code;
}

bool dist_launch(int32_t ranks, int64_t timeout_s, struct dist *out, int *exit_status)
{
    const pid_t parent = getpid();
    struct launch launch = {.dist = out};
    sigset_t set;
    *exit_status = 1;
    *out = (struct dist){.ranks = ranks, .local_ranks = ranks, .timeout_s = timeout_s};
    out->shared = mmap(NULL, dist_shared_bytes(ranks), PROT_READ | PROT_WRITE,
                       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (out->shared == MAP_FAILED) {
        log_error("out of memory for what %" PRId32 " ranks share: %s", ranks, strerror(errno));
        return true;
    }
    (void)snprintf(out->carrier, sizeof out->carrier, "%s that they share",
                   LOG_BYTES(dist_shared_bytes(ranks)));
    dist_shared_set(out, out->shared);
    sigemptyset(&set);
    for (int32_t r = 0; r < ranks; r++) {
        const pid_t pid = fork();
        if (pid == 0) {
            rank_begin(out, r, parent);
            return false;
        }
        launch.child[r] = (struct child){.pid = pid, .ended = pid < 0};
        if (pid < 0) {
            log_error("rank %" PRId32 " could not be started: %s", r, strerror(errno));
            out->ranks = r; /* those that were started */
            kill_all(&launch);
            return true;
        }
    }
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGHUP);
    sigprocmask(SIG_BLOCK, &set, NULL);
    while ((*exit_status = look(&launch, &set)) < 0)
        (void)nanosleep(&(struct timespec){.tv_nsec = POLL_NS}, NULL);
    return true;
}
