/* The memory that this process may use, and what it uses. */
#ifndef GPT_TRAIN_BASE_SYSTEM_MEMORY_H
#define GPT_TRAIN_BASE_SYSTEM_MEMORY_H

#include "base/status.h"

/* Total and available bytes, the minimum over the machine, the process's cgroups and its address
 * space.  Returns false when the system reports nothing. */
bool system_memory_read(uint64_t *out_total_bytes, uint64_t *out_free_bytes);
/* Calls visit(context, FOLDER, unified) for the cgroups with `controller` ("memory") that
 * `membership` names, in the format of /proc/self/cgroup, and for their parents below the mount
 * point `root` (/sys/fs/cgroup).  `unified` is true for cgroup v2, false for v1.  Some folders may
 * not exist. */
typedef void cgroup_fn(void *context, const char *folder, bool unified);
void cgroups_visit(const char *membership, const char *root, const char *controller,
                   cgroup_fn *visit, void *context);
/* Lowers *total_bytes and *free_bytes to the limits of these cgroups.  Unreadable files set no
 * limit. */
void system_memory_limit(const char *membership, const char *root, uint64_t *total_bytes,
                         uint64_t *free_bytes);
/* Returns true when ulimit -v leaves less memory than the machine and the cgroups do; other
 * processes are then not the cause of a shortage. */
bool system_memory_space_is_limit(void);

/* The current and the peak resident set in bytes; 0 if the system does not report it. */
size_t process_rss_bytes(void);
size_t process_rss_bytes_max(void);

#endif
