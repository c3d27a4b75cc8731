/* The arena of the cpu backend, and the memory available for it. */
#ifndef GPT_TRAIN_CPU_CPU_MEMORY_H
#define GPT_TRAIN_CPU_CPU_MEMORY_H

#include "backends/cpu/cpu.h"

/* Returns the memory of this machine and of the cgroups that this process belongs to, in bytes.
 * Errors: GT_DEVICE when the system does not report it. */
enum gt_status cpu_memory_read(uint64_t *out_total_bytes, uint64_t *out_free_bytes);
/* Writes to `out` the processes below `proc` (/proc) with the largest resident sets, except
 * `own_pid`, if any. */
void cpu_memory_holders(const char *proc, int64_t own_pid, struct backend_holders *out);
/* Maps `count` segments and touches every page with cpu->threads threads.  On failure nothing stays
 * mapped.  Errors: GT_NO_MEMORY; GT_DEVICE from cpu_memory_read(). */
enum gt_status cpu_memory_map(struct cpu_backend *cpu, const struct backend_segment *segments,
                              int32_t count);
void cpu_memory_unmap(struct cpu_backend *cpu);

#endif
