/* Tests of base/thread and base/contention: quotas read from made-up cgroup trees, the bounds of this machine's count,
 * and the share of time that another program takes from this one. */
#ifdef __linux__
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* sched_setaffinity */
#endif
#include <sched.h>
#include <sys/wait.h>
#endif

#include "base/thread.h"

#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "tests/unit/unit_main.h"

/* Writes `text` to FOLDER/NAME; makes the folders in between. */
static void put(const char *folder, const char *name, const char *text)
{
    char path[FILE_PATH_MAX];
    file_join(path, folder, name);
    char *slash = strrchr(path, '/');
    *slash = '\0';
    ck_assert_int_eq(file_make_folders(path), GT_OK);
    *slash = '/';
    ck_assert_int_eq(file_replace(path, text, strlen(text)), GT_OK);
}

static const struct {
    const char *membership;
    const char *files[6][2];
    int limit;
} trees[] = {
    {"0::/\n", {{"cpu.max", "200000 100000\n"}}, 2},
    {"0::/\n", {{"cpu.max", "max 100000\n"}}, 0},
    {"0::/a/b\n", {{"a/b/cpu.max", "250000 100000\n"}}, 3},                             /* rounded up */
    {"0::/a/b\n", {{"a/b/cpu.max", "max 100000\n"}, {"a/cpu.max", "50000 100000"}}, 1}, /* the parent's */
    {"0::/a/b\n", {{"a/b/cpu.max", "900000 100000\n"}, {"cpu.max", "300000 100000"}}, 3},
    {"0::/a\n", {{"ab/cpu.max", "100000 100000\n"}}, 0}, /* not on the chain */
    {"0::/seen/from/outside\n", {{"cpu.max", "400000 100000\n"}}, 4},
    {"0::/u\n", {{"unified/u/cpu.max", "100000 50000\n"}}, 2},
    {"4:memory:/m\n3:cpu,cpuacct:/job\n0::/\n",
     {{"cpu,cpuacct/job/cpu.cfs_quota_us", "150000\n"}, {"cpu,cpuacct/job/cpu.cfs_period_us", "100000\n"}},
     2},
    {"3:cpuacct,cpu:/job\n", {{"cpu/cpu.cfs_quota_us", "500000\n"}, {"cpu/cpu.cfs_period_us", "100000\n"}}, 5},
    {"3:cpu:/job\n", {{"cpu/job/cpu.cfs_quota_us", "-1\n"}, {"cpu/job/cpu.cfs_period_us", "100000\n"}}, 0},
    {"3:cpuset:/job\n", {{"cpuset/job/cpu.cfs_quota_us", "1\n"}, {"cpuset/job/cpu.cfs_period_us", "1\n"}}, 0},
    {"0::/\n", {{"cpu.max", "nonsense"}}, 0},
    {"0::/\n", {{"cpu.max", "100000"}}, 0},
    {"0::/\n", {{"cpu.max", "100000 0"}}, 0},
    {"0::/\n", {{"cpu.max", "9223372036854775807 1"}}, 0},
    {"0::/\n", {{"cpu.max", ""}}, 0},
    {"garbage\n\n:\n::\n0:\n", {{"cpu.max", "100000 100000"}}, 0},
    {"", {{"cpu.max", "100000 100000"}}, 0},
};

static void remove_tree(const char *folder)
{
    char command[FILE_PATH_MAX + 16];
    (void)snprintf(command, sizeof command, "rm -rf '%s'", folder);
    ck_assert_int_eq(system(command), 0);
}

TEST_LOOP(quota, (int)(sizeof trees / sizeof trees[0]))
{
    char folder[] = "/tmp/gpt-train-thread-XXXXXX";
    ck_assert_ptr_nonnull(mkdtemp(folder));
    put(folder, "membership", trees[_i].membership);
    char root[FILE_PATH_MAX];
    char membership[FILE_PATH_MAX];
    file_join(root, folder, "mount");
    file_join(membership, folder, "membership");
    for (int i = 0; i < 6 && trees[_i].files[i][0] != NULL; i++)
        put(root, trees[_i].files[i][0], trees[_i].files[i][1]);
    ck_assert_int_eq(thread_count_quota(membership, root), trees[_i].limit);
    remove_tree(folder);
    ck_assert_int_eq(thread_count_quota(membership, root), 0); /* absent files set no limit */
}

TEST(this_machine)
{
    const long configured = sysconf(_SC_NPROCESSORS_CONF);
    const int count = thread_count_available();
    ck_assert_int_ge(count, 1);
    ck_assert_int_le(count, configured);
#ifdef __linux__
    cpu_set_t all;
    cpu_set_t one;
    ck_assert_int_eq(sched_getaffinity(0, sizeof all, &all), 0);
    ck_assert_int_le(count, CPU_COUNT(&all));
    CPU_ZERO(&one);
    for (size_t i = 0; i < CPU_SETSIZE; i++) {
        if (CPU_ISSET(i, &all)) {
            CPU_SET(i, &one);
            break;
        }
    }
    ck_assert_int_eq(sched_setaffinity(0, sizeof one, &one), 0);
    ck_assert_int_eq(thread_count_available(), 1);
    ck_assert_int_eq(sched_setaffinity(0, sizeof all, &all), 0);
    ck_assert_int_eq(thread_count_available(), count);
#endif
}

#ifdef __linux__
/* Returns the number of cores when only processors `first` and `second` are described, by `text`. */
static int cores_described(const char *folder, int first, int second, const char *text)
{
    char name[64];
    (void)snprintf(name, sizeof name, "cpu%d/topology/thread_siblings_list", first);
    put(folder, name, text);
    (void)snprintf(name, sizeof name, "cpu%d/topology/thread_siblings_list", second);
    put(folder, name, text);
    return thread_count_cores(folder);
}
#endif

/* Counters after one second, in milliseconds; `share` is what other programs took of it. */
static const struct {
    int processors;
    struct {
        int64_t run_ms, wait_ms;
    } threads[4];
    double share;
} seconds_shared[] = {
    {2, {{1000, 0}, {1000, 0}}, 0.0},
    {2, {{700, 300}, {1000, 0}}, 0.225}, /* one of two processors was taken for 300 ms */
    {2, {{700, 300}, {900, 100}}, 0.3},
    {2, {{500, 500}, {500, 500}}, 0.5},
    {1, {{500, 500}, {500, 500}}, 0.0}, /* the threads waited for each other */
    {1, {{300, 700}, {300, 700}}, 0.4}, /* for each other, and for another program */
    {4, {{1000, 0}, {200, 10}}, 0.01},  /* an idle thread does not wait */
    {1, {{1010, 0}}, 0.0},              /* counters may be late */
    {1, {{0, 0}}, 0.0},
};

TEST_LOOP(share_of_a_second, (int)(sizeof seconds_shared / sizeof seconds_shared[0]))
{
    struct contention before = {.count = 1, .thread[0] = {.id = 7, .run_ns = 5000, .wait_ns = 9000}};
    struct contention after = {.at_ns = 1000000000, .count = 4};
    for (int i = 0; i < 4; i++)
        after.thread[i] = (struct contention_thread){.id = 7 + i,
                                                     .run_ns = seconds_shared[_i].threads[i].run_ms * 1000000,
                                                     .wait_ns = seconds_shared[_i].threads[i].wait_ms * 1000000};
    after.thread[0].run_ns += before.thread[0].run_ns;
    after.thread[0].wait_ns += before.thread[0].wait_ns;
    ck_assert_double_eq_tol(contention_share(&before, &after, seconds_shared[_i].processors), seconds_shared[_i].share,
                            1e-9);
    ck_assert(contention_share(&after, &after, 1) == 0.0);
}

#ifdef __linux__
static void busy(double seconds)
{
    for (const int64_t end_ns = clock_monotonic_ns() + (int64_t)(seconds * 1e9); clock_monotonic_ns() < end_ns;)
        continue;
}

TEST(a_busy_program_is_noticed)
{
    struct contention before, after;
    cpu_set_t all, one;
    if (access("/proc/self/schedstat", R_OK) != 0)
        return;
    ck_assert_int_eq(sched_getaffinity(0, sizeof all, &all), 0);
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    ck_assert_int_eq(sched_setaffinity(0, sizeof one, &one), 0);
    const pid_t child = fork();
    if (child == 0) {
        busy(0.5);
        _exit(0);
    }
    busy(0.05);
    contention_read(&before);
    busy(0.3);
    contention_read(&after);
    ck_assert_int_eq(waitpid(child, NULL, 0), child);
    ck_assert_int_eq(sched_setaffinity(0, sizeof all, &all), 0);
    ck_assert_double_gt(contention_share(&before, &after, 1), CONTENTION_DISTURBED);
}
#endif

TEST(cores)
{
    char folder[] = "/tmp/gpt-train-thread-XXXXXX";
    ck_assert_ptr_nonnull(mkdtemp(folder));
    const int all = thread_count_available();
    ck_assert_int_eq(thread_count_cores(folder), all); /* no processor is described */
    ck_assert_int_ge(thread_count_cores(THREAD_CORES_FOLDER), 1);
    ck_assert_int_le(thread_count_cores(THREAD_CORES_FOLDER), all);
#ifdef __linux__
    cpu_set_t set, pair;
    int processors[2], count = 0;
    ck_assert_int_eq(sched_getaffinity(0, sizeof set, &set), 0);
    for (int i = 0; i < CPU_SETSIZE && count < 2; i++)
        if (CPU_ISSET(i, &set))
            processors[count++] = i;
    if (count == 2 && all >= 2) {
        const int a = processors[0], b = processors[1];
        char text[64];
        CPU_ZERO(&pair);
        CPU_SET(a, &pair);
        CPU_SET(b, &pair);
        ck_assert_int_eq(sched_setaffinity(0, sizeof pair, &pair), 0);
        (void)snprintf(text, sizeof text, "%d,%d\n", a, b);
        ck_assert_int_eq(cores_described(folder, a, b, text), 1);
        (void)snprintf(text, sizeof text, "%d-%d\n", a, b);
        ck_assert_int_eq(cores_described(folder, a, b, text), 1);
        (void)snprintf(text, sizeof text, "%d,%d-%d,%d\n", b + 1, b + 3, b + 4, b + 9);
        ck_assert_int_eq(cores_described(folder, a, b, text), 2); /* siblings outside of our processors */
        static const char *const odd[] = {
            "", "\n", "x", ",", "-", "0-", "99999999999999999999999\n", "1-99999999999999\n"};
        for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i++)
            ck_assert_int_ge(cores_described(folder, a, b, odd[i]), 1);
        CPU_CLR(b, &pair);
        ck_assert_int_eq(sched_setaffinity(0, sizeof pair, &pair), 0);
        (void)snprintf(text, sizeof text, "%d,%d\n", a, b);
        ck_assert_int_eq(cores_described(folder, a, b, text), 1);
        ck_assert_int_eq(sched_setaffinity(0, sizeof set, &set), 0);
    }
#endif
    remove_tree(folder);
}

struct shared_loop {
    atomic_int done[1000];
    atomic_int busy[8]; /* calls in progress with this thread number */
    atomic_int wrong;
};

static void count_index(void *context, size_t index, int thread)
{
    struct shared_loop *loop = context;
    if (thread < 0 || thread >= 8 || atomic_fetch_add(&loop->busy[thread], 1) != 0)
        atomic_fetch_add(&loop->wrong, 1);
    atomic_fetch_add(&loop->done[index], 1);
    atomic_fetch_sub(&loop->busy[thread], 1);
}

static void count_done(void *context, size_t index, int thread)
{
    atomic_int *done = context;
    ck_assert_int_lt(thread, 256);
    atomic_fetch_add(&done[index], 1);
}

TEST(loop_does_everything_once)
{
    static const int threads[] = {1, 2, 8};
    static const size_t counts[] = {0, 1, 5, 1000};
    for (size_t t = 0; t < 3; t++)
        for (size_t c = 0; c < 4; c++) {
            static struct shared_loop loop;
            memset(&loop, 0, sizeof loop);
            thread_for_each(threads[t], counts[c], count_index, &loop);
            ck_assert_int_eq(atomic_load(&loop.wrong), 0);
            for (size_t i = 0; i < 1000; i++)
                ck_assert_int_eq(atomic_load(&loop.done[i]), i < counts[c]);
        }
}

/* A machine may have more processors than a loop supports. */
TEST(loop_of_more_threads_than_it_takes)
{
    static atomic_int done[2000];
    thread_for_each(257, 2000, count_done, done);
    thread_for_each(INT_MAX, 2000, count_done, done);
    for (size_t i = 0; i < 2000; i++)
        ck_assert_int_eq(atomic_load(&done[i]), 2);
}
