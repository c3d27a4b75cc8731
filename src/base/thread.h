/* Counting the processors that this process may really use. */
#ifndef GPT_TRAIN_BASE_THREAD_H
#define GPT_TRAIN_BASE_THREAD_H

/* min(affinity mask, cgroup v1/v2 CPU quota rounded up), at least 1. */
int thread_count_available(void);

/* The CPU quota, rounded up, of the cgroups named in `membership` (a file as /proc/self/cgroup) and of their parents,
 * below the mount `root` (a folder as /sys/fs/cgroup); 0 when there is none or it cannot be read. */
int thread_count_quota(const char *membership, const char *root);

#endif
