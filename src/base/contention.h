/* Contention: how much of the time other programs kept this process from running.
 *
 * The kernel counts, for each thread, how long the thread was ready to run but waited for a processor (Linux,
 * Documentation/scheduler/sched-stats.rst).  Where it does not, every share is 0.
 */
#ifndef GPT_TRAIN_BASE_CONTENTION_H
#define GPT_TRAIN_BASE_CONTENTION_H

#include <stdint.h>

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

/* Returns the share of the time between two readings that other programs took from this process; 0 to 1.  It is how
 * long the most delayed thread waited, as far as the process left its `processors` unused: threads may also wait for
 * each other.  If other programs take a time t of one of n processors, a shared loop ends later by t / n, where the
 * other threads do the delayed one's part, up to t, where they wait for it; the middle is taken. */
double contention_share(const struct contention *before, const struct contention *after, int processors);

#endif
