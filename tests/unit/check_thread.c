/* Tests of base/thread and base/contention: quotas read from made-up cgroup trees, the bounds of
 * this machine's count, and the share of time that another program takes from this one. */
#ifdef __linux__
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* sched_setaffinity */
#endif
#include <sched.h>
#include <sys/wait.h>
#endif

#include "base/thread.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "tests/unit/scratch.h"
#include "tests/unit/unit_main.h"

static const struct {
    const char *membership;
    const char *files[6][2];
    int limit;
} trees[] = {
    {"0::/\n", {{"cpu.max", "200000 100000\n"}}, 2},
    {"0::/\n", {{"cpu.max", "max 100000\n"}}, 0},
    {"0::/a/b\n", {{"a/b/cpu.max", "250000 100000\n"}}, 3}, /* rounded up */
    {"0::/a/b\n",
     {{"a/b/cpu.max", "max 100000\n"}, {"a/cpu.max", "50000 100000"}},
     1}, /* the parent's */
    {"0::/a/b\n", {{"a/b/cpu.max", "900000 100000\n"}, {"cpu.max", "300000 100000"}}, 3},
    {"0::/a\n", {{"ab/cpu.max", "100000 100000\n"}}, 0}, /* not on the chain */
    {"0::/seen/from/outside\n", {{"cpu.max", "400000 100000\n"}}, 4},
    {"0::/u\n", {{"unified/u/cpu.max", "100000 50000\n"}}, 2},
    {"4:memory:/m\n3:cpu,cpuacct:/job\n0::/\n",
     {{"cpu,cpuacct/job/cpu.cfs_quota_us", "150000\n"},
      {"cpu,cpuacct/job/cpu.cfs_period_us", "100000\n"}},
     2},
    {"3:cpuacct,cpu:/job\n",
     {{"cpu/cpu.cfs_quota_us", "500000\n"}, {"cpu/cpu.cfs_period_us", "100000\n"}},
     5},
    {"3:cpu:/job\n",
     {{"cpu/job/cpu.cfs_quota_us", "-1\n"}, {"cpu/job/cpu.cfs_period_us", "100000\n"}},
     0},
    {"3:cpuset:/job\n",
     {{"cpuset/job/cpu.cfs_quota_us", "1\n"}, {"cpuset/job/cpu.cfs_period_us", "1\n"}},
     0},
    {"0::/\n", {{"cpu.max", "nonsense"}}, 0},
    {"0::/\n", {{"cpu.max", "100000"}}, 0},
    {"0::/\n", {{"cpu.max", "100000 0"}}, 0},
    {"0::/\n", {{"cpu.max", "9223372036854775807 1"}}, 0},
    {"0::/\n", {{"cpu.max", ""}}, 0},
    {"garbage\n\n:\n::\n0:\n", {{"cpu.max", "100000 100000"}}, 0},
    {"", {{"cpu.max", "100000 100000"}}, 0},
};

TEST_LOOP(quotas_of_cgroups_limit_threads, (int)(sizeof trees / sizeof trees[0]))
{
    char folder[FILE_PATH_MAX], root[FILE_PATH_MAX], membership[FILE_PATH_MAX];
    scratch_make(folder);
    scratch_put(folder, "membership", trees[_i].membership);
    file_join(root, folder, "mount");
    file_join(membership, folder, "membership");
    for (int i = 0; i < 6 && trees[_i].files[i][0] != NULL; i++)
        scratch_put(root, trees[_i].files[i][0], trees[_i].files[i][1]);
    ck_assert_int_eq(thread_count_quota(membership, root), trees[_i].limit);
    scratch_remove(folder);
    ck_assert_int_eq(thread_count_quota(membership, root), 0); /* absent files set no limit */
}

#ifdef __linux__
/* Returns the number of cores when only processors `first` and `second` are described, by `text`.
 */
static int cores_described(const char *folder, int first, int second, const char *text)
{
    char name[64];
    (void)snprintf(name, sizeof name, "cpu%d/topology/thread_siblings_list", first);
    scratch_put(folder, name, text);
    (void)snprintf(name, sizeof name, "cpu%d/topology/thread_siblings_list", second);
    scratch_put(folder, name, text);
    return thread_count_cores(folder);
}
#endif

TEST(sibling_processors_count_as_one_core)
{
    char folder[FILE_PATH_MAX];
    scratch_make(folder);
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
        ck_assert_int_eq(cores_described(folder, a, b, text),
                         2); /* siblings outside of our processors */
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
    scratch_remove(folder);
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
