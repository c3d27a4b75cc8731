/* Ranks that MPI's launcher started.
 *
 * Rank 0 watches all others, and rank 1 watches rank 0, by the signs of life that MPI carries.  A
 * rank that fails sends its error to rank 0, which prints it unless rank 0 ends by an error of its
 * own within DIST_GRACE_NS.
 */

#include "dist/comm_module.h"
#include <config.h>

#include <time.h>
#include <unistd.h>

#include "base/clock.h"

#define LAST_NS 200000000 /* by which rank 0 ends after the others, if its exit status is not 0 */

/* A process is a rank of one run at most. */
static struct {
    struct dist_watch watch;
    struct dist_seat seat[DIST_RANKS_MAX];
    atomic_int stop;
    int64_t failed_ns; /* when the first failure of a rank was seen, or 0 */
} world;

static int tick(struct dist *dist)
{
    const int32_t begin = dist->rank == 0 ? 1 : 0, end = dist->rank == 0 ? dist->ranks : 1;
    const int64_t now_ns = clock_monotonic_ns();
    for (int32_t r = 1; dist->rank == 0 && r < dist->ranks; r++) {
        const int code = atomic_load(&dist->seat[r].code);
        world.watch.rank[r].ended = code != 0;
        if (code != 0 && world.failed_ns == 0)
            world.failed_ns = now_ns;
        if (code == 0 || now_ns - world.failed_ns < DIST_GRACE_NS)
            continue;
        log_error("rank %" PRId32 " on %s: %s", r, dist->host[r], dist->seat[r].error);
        return code;
    }
    const int32_t silent = dist->rank <= 1 ? dist_watch_silent(&world.watch, dist, begin, end) : -1;
    if (silent < 0)
        return 0;
    log_sink_set(NULL, NULL);
    return dist_watch_end(dist, silent, "has given no sign of life for", dist->timeout_s, " s");
}

/* Loads the module and opens it, or explains why not. */
static enum gt_status module_open(int64_t tasks, struct dist *dist)
{
#ifdef HAVE_MPI
    char reason[MODULE_REASON_MAX];
    bool absent;
    const struct comm_module *module = module_load("mpi", COMM_MODULE_ABI, reason, &absent);
    if (module == NULL)
        return FAIL(GT_UNSUPPORTED,
                    "a launcher started %" PRId64 " tasks, and MPI cannot be used: %s", tasks,
                    reason);
    if (!module->open(dist))
        return FAIL(GT_UNSUPPORTED,
                    "a launcher started %" PRId64 " tasks, and MPI cannot be started", tasks);
    if (dist->ranks != tasks)
        return FAIL(GT_UNSUPPORTED,
                    "a launcher started %" PRId64 " tasks, but %s knows of %" PRId32
                    "; use that MPI's own mpirun, or "
                    "srun --mpi=pmix (srun --mpi=list shows what this Slurm has)",
                    tasks, dist->carrier, dist->ranks);
    return GT_OK;
#else
    (void)dist;
    return FAIL(GT_UNSUPPORTED,
                "a launcher started %" PRId64
                " tasks, and this build has no MPI (configure --with-mpi); on one machine, "
                "type the command without the launcher and add --ranks=%" PRId64,
                tasks, tasks);
#endif
}

enum gt_status dist_join(int64_t tasks, bool first, struct dist *out)
{
    char host[DIST_NAME_BYTES] = "";
    out->seat = world.seat;
    out->timeout_s = 60;
    out->stop_word = &world.stop;
    out->tick = tick;
    if (!first)
        dist_silence(out);
    TRY(module_open(tasks, out));
    if (out->rank > 0)
        dist_silence(out);
    if (out->rank > 0 && freopen("/dev/null", "w", stdout) == NULL)
        return FAIL(GT_IO, "cannot open /dev/null");
    (void)gethostname(host, sizeof host - 1);
    dist_gather(out, host, sizeof host, out->host);
    return GT_OK;
}

void dist_leave(struct dist *dist, int code, bool stopped)
{
    if (dist->close == NULL)
        return;
    if (code == 0 || stopped)
        dist_gather(dist, &code, 0, &code);
    (void)fflush(NULL);
    dist->close(dist, stopped ? 0 : code);
    if (stopped && dist->rank == 0) /* mpirun 4.1 may hang if a task fails while others end */
        (void)nanosleep(&(struct timespec){.tv_nsec = LAST_NS}, NULL);
}
