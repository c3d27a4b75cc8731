/* Threads: counting the processors that this process may really use, and sharing a loop among threads. */
#ifndef GPT_TRAIN_BASE_THREAD_H
#define GPT_TRAIN_BASE_THREAD_H

#include <stddef.h>

/* min(affinity mask, cgroup v1/v2 CPU quota rounded up), at least 1. */
int thread_count_available(void);

/* The same of physical cores: processors that share one (hyperthreads) count once.  `folder` describes them as
 * THREAD_CORES_FOLDER does; where it does not, each processor is a core. */
#define THREAD_CORES_FOLDER "/sys/devices/system/cpu"
int thread_count_cores(const char *folder);

/* min(count, that quota), at least 1; a count of 0 stands for the processors that are online. */
int thread_count_limited(int count);

/* The CPU quota, rounded up, of the cgroups named in `membership` (a file as /proc/self/cgroup) and of their parents,
 * below the mount `root` (a folder as /sys/fs/cgroup); 0 when there is none or it cannot be read. */
int thread_count_quota(const char *membership, const char *root);

/* `thread` is below the number asked for, and no two calls at the same time have the same. */
typedef void thread_work_fn(void *context, size_t index, int thread);

/* Calls work(context, i, thread) once for every i below `count`, in any order, on up to `threads` threads of which the
 * calling one is one; returns when all are done.  Threads beyond 256, and those that the system refuses, are done without. */
void thread_for_each(int threads, size_t count, thread_work_fn *work, void *context);

#endif
