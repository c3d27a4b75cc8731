/* Ranks in memory that they share.
 *
 * The block is mapped before the fork, so it has no name and ends with the last process.  Each rank has a seat in it.
 * A rank counts its meetings there and waits until the count of every other rank is as high.  Words are exchanged in
 * two sets by turns: a rank that is late at reading one set finds it unchanged until the meeting after the next.  All
 * ranks are forks of one process, so a string literal has the same address in each.
 *
 * Ranks never time out themselves.  The process that started them looks every few milliseconds whether they have ended,
 * and whether they still give signs of life.  If it dies, the kernel ends them (on Linux).
 */
#include "dist/dist.h"

#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif

#include "base/clock.h"
#include "base/log.h"
#include "base/size.h"

#define ERROR_BYTES 512
#define LOOK_NS 20000000
#define PAUSE_NS 100000
#define YIELDS 200
#define FAILED_GRACE_NS INT64_C(2000000000) /* for rank 0 to print its own error, if all ranks have the same one */

/* Aligned so that ranks that wait do not slow each other. */
struct dist_seat {
    _Alignas(128) atomic_uint_fast64_t meetings;
    atomic_uint_fast64_t signs;
    atomic_llong iter;
    _Atomic(const char *) what;
    double words[2][DIST_WORDS_MAX];
    char error[ERROR_BYTES]; /* the rank's last one */
};

struct dist_shared {
    atomic_int stop; /* a signal that a process received, or 0 */
    int agreed[2];   /* rank 0's reading of it */
    struct dist_seat seat[DIST_RANKS_MAX];
};

_Static_assert(sizeof(struct dist_shared) <= DIST_HEADER_BYTES, "all seats");

/* ---- a rank ---- */

static void pause_ns(long ns)
{
    const struct timespec time = {.tv_nsec = ns};
    (void)nanosleep(&time, NULL);
}

void dist_sign(const struct dist *dist, const char *what)
{
    struct dist_seat *seat = &dist->shared->seat[dist->rank];
    if (what != NULL)
        atomic_store(&seat->what, what);
    atomic_fetch_add(&seat->signs, 1);
}

void dist_iter_set(const struct dist *dist, int64_t iter)
{
    atomic_store(&dist->shared->seat[dist->rank].iter, iter);
}

void dist_meet(struct dist *dist)
{
    struct dist_seat *seats = dist->shared->seat;
    const uint64_t number = ++dist->meetings;
    bool waited = false;
    atomic_store(&seats[dist->rank].meetings, number);
    for (int32_t r = 0; r < dist->ranks; r++)
        for (int tries = 0; atomic_load(&seats[r].meetings) < number; tries++) {
            if (tries < YIELDS) {
                (void)sched_yield();
                continue;
            }
            dist_sign(dist, "its wait for the other ranks");
            pause_ns(PAUSE_NS);
            waited = true;
        }
    if (waited)
        dist_sign(dist, "what follows its wait");
}

void dist_gather(struct dist *dist, const double *mine, int32_t count, double *all)
{
    struct dist_shared *shared = dist->shared;
    const size_t set = dist->meetings % 2, bytes = (size_t)count * sizeof *mine;
    assert(count <= DIST_WORDS_MAX);
    if (dist->rank == 0)
        shared->agreed[set] = atomic_load(&shared->stop);
    memcpy(shared->seat[dist->rank].words[set], mine, bytes);
    dist_meet(dist);
    for (int32_t r = 0; r < dist->ranks; r++)
        memcpy(all + (int64_t)r * count, shared->seat[r].words[set], bytes);
    dist->stop = shared->agreed[set];
}

float *dist_piece(const struct dist *dist, int32_t index)
{
    assert(index >= 0 && index < dist->ranks + DIST_SUMS);
    return (float *)(void *)((char *)dist->shared + DIST_HEADER_BYTES) + index * DIST_PIECE_FLOATS;
}

/* Keeps an error for the process that started the ranks, which shows it if this rank is the one that ended the run. */
static void rank_sink(void *context, enum log_level level, const char *line)
{
    const char *text = strstr(line, ": ");
    text = text != NULL ? strstr(text + 2, ": ") : NULL;
    if (level == LOG_ERROR)
        (void)snprintf(context, ERROR_BYTES, "%s", text != NULL ? text + 2 : line);
}

static void rank_begin(struct dist *dist, int32_t rank, pid_t parent)
{
    dist->rank = rank;
#ifdef __linux__
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
#endif
    if (getppid() != parent)
        _exit(1);
    if (rank > 0)
        log_sink_set(rank_sink, dist->shared->seat[rank].error);
}

/* ---- the process that started them ---- */

struct child {
    pid_t pid;
    bool ended;
    int code;   /* exit status */
    int signal; /* that ended it, or 0 */
    uint64_t signs;
    int64_t silent_ns;
};

struct watch {
    struct dist *dist;
    struct child child[DIST_RANKS_MAX];
    int64_t timeout_ns, looked_ns;
    bool received;     /* this process received a signal */
    int64_t failed_ns; /* when the first rank that failed had ended, or 0 */
    int32_t failed;    /* that rank */
};

static void reap(struct watch *watch, int options)
{
    for (int32_t r = 0; r < watch->dist->ranks; r++) {
        struct child *child = &watch->child[r];
        int status;
        if (child->ended || waitpid(child->pid, &status, options) != child->pid)
            continue;
        child->ended = true;
        child->signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
        child->code = WIFSIGNALED(status) ? 128 + child->signal : WEXITSTATUS(status);
        if (child->code != 0 && watch->failed_ns == 0) {
            watch->failed_ns = clock_monotonic_ns();
            watch->failed = r;
        }
    }
}

static void kill_all(struct watch *watch)
{
    for (int32_t r = 0; r < watch->dist->ranks; r++)
        if (!watch->child[r].ended)
            (void)kill(watch->child[r].pid, SIGKILL);
    reap(watch, 0);
}

/* Ends all ranks because of one, with one line: it `failed`, at the op that it was last seen in. */
static int end_all(struct watch *watch, int32_t rank, const char *how, int64_t number, const char *unit)
{
    const struct dist_seat *seat = &watch->dist->shared->seat[rank];
    const char *what = atomic_load(&seat->what);
    kill_all(watch);
    log_error("rank %" PRId32 " %s %" PRId64 "%s, last seen at iter %lld in %s; all ranks were ended, and the last "
              "checkpoint is unchanged",
              rank, how, number, unit, atomic_load(&seat->iter), what != NULL ? what : "its start");
    return 1;
}

/* Passes the first signal that this process received to the ranks; a second one ends everything.  Returns the signal
 * that is to end the run, or 0. */
static int signals_take(struct watch *watch, const sigset_t *set)
{
    sigset_t pending;
    int number;
    for (int i = 1; sigpending(&pending) == 0 && i < NSIG; i++) {
        if (sigismember(set, i) != 1 || sigismember(&pending, i) != 1 || sigwait(set, &number) != 0)
            continue;
        if (watch->received) {
            kill_all(watch);
            _exit(128 + number);
        }
        watch->received = true;
        atomic_store(&watch->dist->shared->stop, number);
    }
    return atomic_load(&watch->dist->shared->stop);
}

/* Returns the rank that has given no sign of life for too long, or -1.  Time in which this process itself was stopped
 * does not count. */
static int32_t silent_find(struct watch *watch)
{
    const int64_t now_ns = clock_monotonic_ns(), gap_ns = now_ns - watch->looked_ns;
    watch->looked_ns = now_ns;
    for (int32_t r = 0; r < watch->dist->ranks; r++) {
        struct child *child = &watch->child[r];
        const uint64_t signs = atomic_load(&watch->dist->shared->seat[r].signs);
        child->silent_ns = signs == child->signs ? child->silent_ns + min_i64(gap_ns, 10 * LOOK_NS) : 0;
        child->signs = signs;
        if (!child->ended && child->silent_ns > watch->timeout_ns)
            return r;
    }
    return -1;
}

/* Returns -1 while the ranks run, then the exit status.  If rank 0 fails too, it has printed its own error. */
static int look(struct watch *watch, const sigset_t *set)
{
    const struct child *failed = &watch->child[watch->failed], *first = &watch->child[0];
    bool all = true;
    reap(watch, WNOHANG);
    const int stop = signals_take(watch, set);
    for (int32_t r = 0; r < watch->dist->ranks; r++)
        all = all && watch->child[r].ended;
    if (watch->failed_ns == 0) {
        const int32_t silent = all ? -1 : silent_find(watch);
        if (silent >= 0)
            return end_all(watch, silent, "has given no sign of life for", watch->timeout_ns / 1000000000, " s");
        return all ? 0 : -1;
    }
    if (failed->signal != 0 && failed->signal != stop)
        return end_all(watch, watch->failed, "was ended by signal", failed->signal, "");
    const bool late = failed->code != 128 + stop && clock_monotonic_ns() - watch->failed_ns > FAILED_GRACE_NS;
    if (!first->ended && !late)
        return -1;
    const bool told = first->ended && first->code != 0;
    const int code = told ? first->code : failed->code;
    kill_all(watch);
    if (!told)
        log_error("rank %" PRId32 ": %s", watch->failed, watch->dist->shared->seat[watch->failed].error);
    return code;
}

bool dist_launch(int32_t ranks, int64_t timeout_s, struct dist *out, int *exit_status)
{
    const pid_t parent = getpid();
    struct watch watch = {.dist = out, .timeout_ns = timeout_s * 1000000000, .looked_ns = clock_monotonic_ns()};
    sigset_t set;
    *exit_status = 1;
    *out = (struct dist){.ranks = ranks};
    out->shared = mmap(NULL, dist_shared_bytes(ranks), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (out->shared == MAP_FAILED) {
        log_error("out of memory for what %" PRId32 " ranks share: %s", ranks, strerror(errno));
        return true;
    }
    out->stop_word = &out->shared->stop;
    sigemptyset(&set);
    for (int32_t r = 0; r < ranks; r++) {
        const pid_t pid = fork();
        if (pid == 0) {
            rank_begin(out, r, parent);
            return false;
        }
        watch.child[r] = (struct child){.pid = pid, .ended = pid < 0};
        if (pid < 0) {
            log_error("rank %" PRId32 " could not be started: %s", r, strerror(errno));
            kill_all(&watch);
            return true;
        }
    }
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGHUP);
    sigprocmask(SIG_BLOCK, &set, NULL);
    while ((*exit_status = look(&watch, &set)) < 0)
        pause_ns(LOOK_NS);
    return true;
}
