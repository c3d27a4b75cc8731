/* The memory of this machine, as far as this process may use it. */
#ifndef GPT_TRAIN_BASE_SYSTEM_MEMORY_H
#define GPT_TRAIN_BASE_SYSTEM_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

/* The memory of this machine, of the cgroups that this process is in and of its address space, in bytes: all of it, and what
 * can be had now.  False when the system says nothing about it. */
bool system_memory_read(uint64_t *out_total_bytes, uint64_t *out_free_bytes);
/* The limits of the cgroup v2 chain and the v1 memory controller named in `membership` (a file as /proc/self/cgroup)
 * below `root` (/sys/fs/cgroup) lower *total_bytes and *free_bytes; files that cannot be read set no limit. */
void system_memory_limit(const char *membership, const char *root, uint64_t *total_bytes, uint64_t *free_bytes);
/* The limit of this process's address space (RLIMIT_AS) lowers both in the same way: to it, and to what is left of it. */
void system_memory_space_limit(uint64_t *total_bytes, uint64_t *free_bytes);
/* Returns whether ulimit -v leaves less memory than the machine and the cgroups do; other processes are then not to blame. */
bool system_memory_space_is_limit(void);

#endif
