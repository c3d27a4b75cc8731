/* Threads: counts the processors that this process may use, runs a loop on several threads, and
 * calls a function periodically. */
#ifndef GPT_TRAIN_BASE_THREAD_H
#define GPT_TRAIN_BASE_THREAD_H

#include "base/hostmem.h"

/* The processors in the affinity mask, at most the cgroup v1/v2 CPU quota rounded up; at least 1.
 */
int thread_count_available(void);

/* As above, for physical cores: hyperthreads of one core count once.  `folder` describes the
 * processors as THREAD_CORES_FOLDER does; a processor without a description counts as a core. */
#define THREAD_CORES_FOLDER "/sys/devices/system/cpu"
int thread_count_cores(const char *folder);

/* min(count, CPU quota), at least 1; a count of 0 means the processors online. */
int thread_count_limited(int count);

/* Returns the smallest CPU quota, rounded up, of the cgroups named in `membership` (in the format
 * of /proc/self/cgroup) and of their parents below the mount point `root` (such as /sys/fs/cgroup);
 * 0 for no quota or when unreadable. */
int thread_count_quota(const char *membership, const char *root);

/* `thread` is below the `threads` of thread_for_each(); no two concurrent calls have the same
 * `thread`. */
typedef void thread_work_fn(void *context, size_t index, int thread);

/* Calls work(context, i, thread) once for every i below `count`, in any order, on up to `threads`
 * threads including the caller's.  Returns when all calls are done.  Uses at most 256 threads,
 * fewer if the system refuses more. */
void thread_for_each(int threads, size_t count, thread_work_fn *work, void *context);

/* A thread that calls a function periodically. */
struct ticker;

/* Called on the ticker's thread, never twice at the same time. */
typedef void ticker_fn(void *context);

/* Starts a thread that calls tick(context) about every `seconds`.  `mem` and `context` must outlive
 * the ticker. Errors: GT_NO_MEMORY, GT_FAILURE (the system refuses a thread). */
enum gt_status ticker_start(struct hostmem *mem, double seconds, ticker_fn *tick, void *context,
                            struct ticker **out);
/* Stops the thread and waits for it, for at most the duration of one tick.  Accepts NULL. */
void ticker_stop(struct ticker *ticker);

/* ---- contention: how much of the time other programs kept this process from running ----
 *
 * The kernel counts, for each thread, how long the thread was ready to run but waited for a
 * processor (Linux, Documentation/scheduler/sched-stats.rst).  Where it does not, every share is 0.
 */

#define CONTENTION_THREADS_MAX 256
/* Other programs disturb a run when they hold its processors for this share of the time. */
#define CONTENTION_DISTURBED 0.1

/* The counters of this process's threads at one moment. */
struct contention {
    int64_t at_ns; /* on the monotonic clock */
    int32_t count;
    struct contention_thread {
        int64_t id, run_ns, wait_ns;
    } thread[CONTENTION_THREADS_MAX];
};

void contention_read(struct contention *out);

/* Returns the share of the time between two readings that other programs took from this process; 0
 * to 1.  It is how long the most delayed thread waited, as far as the process left its `processors`
 * unused: threads may also wait for each other.  If other programs take a time t of one of n
 * processors, a shared loop ends later by t / n if the other threads do the delayed one's part, and
 * by up to t if they wait for it; the function takes the mean. */
double contention_share(const struct contention *before, const struct contention *after,
                        int processors);

#endif
