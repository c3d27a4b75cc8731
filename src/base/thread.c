/* Threads: counts processors by the affinity mask, the CPU quotas of cgroup v1 and v2 and the
 * cores; a parallel loop; and a ticker.
 *
 * In a container with a quota of two processors the affinity mask still contains every processor of
 * the host; starting a thread on each of them would make training slower.  The quota may be set on
 * the process's own cgroup or on any parent, so the whole chain is read and the smallest quota
 * counts.  Missing or unreadable files set no limit.
 *
 * The loop's threads take the next index from a shared counter and live as long as the loop.  A
 * ticker sleeps on a condition variable, so that ticker_stop() does not have to wait for the end of
 * the interval; intervals use the monotonic clock (except on macOS), so changes of the wall clock
 * do not affect them.  All threads block signals, so that handlers run on the thread that installed
 * them.
 */
#ifdef __linux__
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* sched_getaffinity */
#endif
#include <sched.h>
#endif

#include "base/thread.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/platform.h"
#include "base/system_memory.h"

enum { LINE_BYTES = 1024 };

/* Reads the first line of FOLDER/NAME, with its newline.  Returns false when it cannot be read. */
static bool first_line(const char *folder, const char *name, char line[static LINE_BYTES])
{
    FILE *file = fopen(FILE_IN(folder, name), "r");
    if (file == NULL)
        return false;
    const bool read = fgets(line, LINE_BYTES, file) != NULL;
    (void)fclose(file);
    return read;
}

#ifdef __linux__
/* Returns true when an earlier processor of the mask shares the core of `processor`.  `siblings` is
 * a list in the kernel's format: "0,8" or "0-1". */
static bool core_is_counted(const char *siblings, size_t processor, const cpu_set_t *set,
                            size_t size_bytes)
{
    const char *at = siblings;
    while (*at >= '0' && *at <= '9') {
        char *end;
        const size_t from = strtoul(at, &end, 10);
        const size_t to = *end == '-' ? strtoul(end + 1, &end, 10) : from;
        for (size_t sibling = from; sibling <= to && sibling < processor; sibling++)
            if (CPU_ISSET_S(sibling, size_bytes, set))
                return true;
        at = *end == ',' ? end + 1 : end;
    }
    return false;
}

/* Counts the processors of the mask, or their cores if `folder` has the kernel's topology.  NULL:
 * processors. */
static int affinity_count(const char *folder)
{
    enum {
        PROCESSORS = 1 << 20
    }; /* the kernel refuses a set smaller than its own; no machine has more */
    const size_t size_bytes = CPU_ALLOC_SIZE(PROCESSORS);
    cpu_set_t *set = CPU_ALLOC(PROCESSORS);
    const bool is_read = set != NULL && sched_getaffinity(0, size_bytes, set) == 0;
    int count = 0;
    for (size_t processor = 0; is_read && processor < PROCESSORS; processor++) {
        char siblings[LINE_BYTES];
        if (!CPU_ISSET_S(processor, size_bytes, set))
            continue;
        const char *name = TEXT(96, "cpu%zu/topology/thread_siblings_list", processor);
        const bool described = folder != NULL && first_line(folder, name, siblings);
        if (!described || !core_is_counted(siblings, processor, set, size_bytes))
            count++;
    }
    CPU_FREE(set);
    return count;
}
#else
static int affinity_count(const char *folder)
{
    (void)folder;
    return 0;
}
#endif

/* The quota of a cgroup over its period, rounded up; 0 for no limit or invalid values.  v2 has a
 * line "QUOTA PERIOD" or "max PERIOD"; v1 has two files, and a quota of -1 is no limit. */
static int quota_count(const char *folder, bool unified)
{
    char quota[LINE_BYTES], period[LINE_BYTES], *rest;
    if (!first_line(folder, unified ? "cpu.max" : "cpu.cfs_quota_us", quota) ||
        (!unified && !first_line(folder, "cpu.cfs_period_us", period)))
        return 0;
    const long long quota_us = strtoll(quota, &rest, 10),
                    period_us = strtoll(unified ? rest : period, NULL, 10);
    if (quota_us <= 0 || period_us <= 0)
        return 0;
    const long long count = (quota_us - 1) / period_us + 1;
    return count > INT_MAX ? 0 : (int)count;
}

/* The smaller of two limits; 0 means no limit. */
static int tighter(int a, int b)
{
    if (a == 0 || b == 0)
        return a + b;
    return a < b ? a : b;
}

static void quota_apply(void *limit, const char *folder, bool unified)
{
    *(int *)limit = tighter(*(int *)limit, quota_count(folder, unified));
}

int thread_count_quota(const char *membership, const char *root)
{
    int limit = 0;
    cgroups_visit(membership, root, "cpu", quota_apply, &limit);
    return limit;
}

int thread_count_limited(int count)
{
    if (count == 0) {
        const long online = sysconf(_SC_NPROCESSORS_ONLN);
        count = online > 0 && online <= INT_MAX ? (int)online : 1;
    }
    return tighter(count, thread_count_quota("/proc/self/cgroup", "/sys/fs/cgroup"));
}

int thread_count_available(void)
{
    return thread_count_limited(affinity_count(NULL));
}

int thread_count_cores(const char *folder)
{
    return thread_count_limited(affinity_count(folder));
}

/* ---- the shared loop ---- */

/* Starts a thread that blocks signals.  Returns an errno. */
static int thread_start(pthread_t *thread, void *(*run)(void *), void *argument)
{
    sigset_t all, before;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    const int error = pthread_create(thread, NULL, run, argument);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

enum {
    LOOP_THREADS_MAX = 256
}; /* their structs are on the stack, and such loops gain nothing from more threads */

struct loop {
    thread_work_fn *work;
    void *context;
    size_t count;
    atomic_size_t next;
};

struct loop_thread {
    struct loop *loop;
    int number;
    pthread_t handle;
};

static void *loop_run(void *argument)
{
    const struct loop_thread *self = argument;
    struct loop *loop = self->loop;
    for (;;) {
        const size_t index = atomic_fetch_add_explicit(&loop->next, 1, memory_order_relaxed);
        if (index >= loop->count)
            return NULL;
        loop->work(loop->context, index, self->number);
    }
}

void thread_for_each(int threads, size_t count, thread_work_fn *work, void *context)
{
    assert(threads >= 1);
    const int most = threads < LOOP_THREADS_MAX ? threads : LOOP_THREADS_MAX;
    struct loop loop = {.work = work, .context = context, .count = count};
    struct loop_thread all[LOOP_THREADS_MAX];
    int started = 1;
    atomic_init(&loop.next, 0);
    for (; started < most && (size_t)started < count; started++) {
        all[started] = (struct loop_thread){.loop = &loop, .number = started};
        if (thread_start(&all[started].handle, loop_run, &all[started]) != 0)
            break;
    }
    all[0] = (struct loop_thread){.loop = &loop, .number = 0};
    (void)loop_run(&all[0]);
    for (int i = 1; i < started; i++)
        (void)pthread_join(all[i].handle, NULL);
}

/* ---- the ticker ---- */

#define NS_PER_SECOND 1000000000

struct ticker {
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t ended;
    bool end; /* protected by the mutex */
    long interval_ns;
    time_t interval_s;
    ticker_fn *tick;
    void *context;
};

/* Sleeps for one interval.  Returns true when the ticker must end. */
static bool interval_end(struct ticker *ticker)
{
    struct timespec until;
    clock_gettime(PLATFORM_TICKER_CLOCK, &until);
    until.tv_nsec += ticker->interval_ns;
    until.tv_sec += ticker->interval_s + until.tv_nsec / NS_PER_SECOND;
    until.tv_nsec %= NS_PER_SECOND;
    pthread_mutex_lock(&ticker->mutex);
    int error = 0;
    while (!ticker->end && error != ETIMEDOUT)
        error = pthread_cond_timedwait(&ticker->ended, &ticker->mutex, &until);
    bool end = ticker->end;
    pthread_mutex_unlock(&ticker->mutex);
    return end;
}

static void *ticker_run(void *argument)
{
    struct ticker *ticker = argument;
    while (!interval_end(ticker))
        ticker->tick(ticker->context);
    return NULL;
}

/* With default attributes and the monotonic clock, Linux refuses neither the condition variable nor
 * the mutex. */
static void locks_create(struct ticker *ticker)
{
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    PLATFORM_TICKER_CLOCK_SET(&attributes);
    pthread_cond_init(&ticker->ended, &attributes);
    pthread_condattr_destroy(&attributes);
    pthread_mutex_init(&ticker->mutex, NULL);
}

static void ticker_destroy(struct ticker *ticker)
{
    pthread_cond_destroy(&ticker->ended);
    pthread_mutex_destroy(&ticker->mutex);
    hostmem_free(ticker);
}

enum gt_status ticker_start(struct hostmem *mem, double seconds, ticker_fn *tick, void *context,
                            struct ticker **out)
{
    struct ticker *ticker;
    assert(seconds > 0.0 && tick != NULL);
    TRY(HOSTMEM_NEW(mem, 1, "ticker", &ticker));
    ticker->tick = tick;
    ticker->context = context;
    ticker->interval_s = (time_t)seconds;
    ticker->interval_ns = (long)((seconds - (double)ticker->interval_s) * NS_PER_SECOND);
    locks_create(ticker);
    const int error = thread_start(&ticker->thread, ticker_run, ticker);
    if (error == 0) {
        *out = ticker;
        return GT_OK;
    }
    ticker_destroy(ticker);
    return FAIL(GT_FAILURE, "cannot start a thread that watches: %s", strerror(error));
}

void ticker_stop(struct ticker *ticker)
{
    if (ticker == NULL)
        return;
    pthread_mutex_lock(&ticker->mutex);
    ticker->end = true;
    pthread_cond_signal(&ticker->ended);
    pthread_mutex_unlock(&ticker->mutex);
    pthread_join(ticker->thread, NULL);
    ticker_destroy(ticker);
}

/* ---- contention ---- */

/* Reads /proc/self/task/ID/schedstat, a line of three numbers: nanoseconds on a processor,
 * nanoseconds waiting for one, and a count of time slices. */
void contention_read(struct contention *out)
{
    DIR *threads = opendir("/proc/self/task");
    out->count = 0;
    while (threads && out->count < CONTENTION_THREADS_MAX) {
        struct contention_thread *thread = &out->thread[out->count];
        const struct dirent *entry = readdir(threads);
        if (!entry)
            break;
        thread->id = strtoll(entry->d_name, NULL, 10);
        FILE *file = thread->id > 0
                         ? fopen(TEXT(300, "/proc/self/task/%s/schedstat", entry->d_name), "re")
                         : NULL;
        out->count +=
            file && fscanf(file, "%" SCNd64 " %" SCNd64, &thread->run_ns, &thread->wait_ns) == 2;
        if (file)
            fclose(file);
    }
    if (threads)
        closedir(threads);
    out->at_ns = clock_monotonic_ns();
}

double contention_share(const struct contention *before, const struct contention *after,
                        int processors)
{
    const double passed_ns = (double)(after->at_ns - before->at_ns);
    double waited_ns = 0.0, ran_ns = 0.0;
    for (int32_t i = 0; i < after->count; i++) {
        struct contention_thread change = after->thread[i]; /* a new thread counts from its start */
        for (int32_t k = 0; k < before->count; k++) {
            change.run_ns -= before->thread[k].id == change.id ? before->thread[k].run_ns : 0;
            change.wait_ns -= before->thread[k].id == change.id ? before->thread[k].wait_ns : 0;
        }
        waited_ns = (double)change.wait_ns > waited_ns ? (double)change.wait_ns : waited_ns;
        ran_ns += (double)change.run_ns;
    }
    if (!(passed_ns > 0.0))
        return 0.0;
    const double waited = waited_ns / passed_ns, taken = processors - ran_ns / passed_ns;
    const double likely = taken * (1.0 + 1.0 / processors) / 2.0,
                 share = waited < likely ? waited : likely;
    return share < 0.0 ? 0.0 : share > 1.0 ? 1.0 : share;
}
