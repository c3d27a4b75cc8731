/* The arena of the cpu backend, and the memory available for it.
 *
 * A segment is one anonymous mapping, in huge pages if the system provides them.  All threads touch
 * it, so that its pages exist, near the threads, before step 1.  An arena larger than the available
 * memory (base/system_memory.h) is refused here, instead of the process being killed later.  The
 * users of the remaining memory are read from /proc, as far as permitted.
 */

#include "backends/cpu/cpu_memory.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include "backend/backend_holders.h"
#include "base/system_memory.h"

#define PATH_MAX_BYTES 1024
#define TOUCH_BYTES (2 << 20) /* one huge page */
#define PAGE_BYTES_MIN 4096

enum gt_status cpu_memory_read(uint64_t *out_total_bytes, uint64_t *out_free_bytes)
{
    if (system_memory_read(out_total_bytes, out_free_bytes))
        return GT_OK;
    return FAIL(GT_DEVICE,
                "cpu: the system does not report how much memory it has (/proc/meminfo, sysconf)");
}

/* Returns the resident set of process `pid`, in bytes; 0 when the process is gone or may not be
 * read. */
static uint64_t resident_bytes(const void *context, const char *proc, int64_t pid)
{
    char path[PATH_MAX_BYTES];
    uint64_t resident = 0;
    (void)context;
    snprintf(path, sizeof path, "%s/%" PRId64 "/statm", proc, pid);
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return 0;
    if (fscanf(file, "%*s %" SCNu64, &resident) != 1)
        resident = 0;
    fclose(file);
    return resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

void cpu_memory_holders(const char *proc, int64_t own_pid, struct backend_holders *out)
{
    backend_holders_scan(out, proc, own_pid, resident_bytes, NULL);
}

static void segment_touch(struct cpu_segment *segment, int32_t threads)
{
    volatile char *memory = segment->memory;
    const size_t size = segment->size_bytes;
    const int64_t chunks = size_ceil_div((int64_t)size, TOUCH_BYTES);
    (void)threads;
    CPU_OMP(omp parallel for schedule(static) num_threads(threads))
    for (int64_t chunk = 0; chunk < chunks; chunk++) {
        const size_t begin = (size_t)chunk * TOUCH_BYTES;
        const size_t end = size_min(begin + TOUCH_BYTES, size);
        for (size_t at = begin; at < end; at += PAGE_BYTES_MIN)
            memory[at] = 0;
    }
}

static enum gt_status segment_map(struct cpu_segment *segment, const struct backend_segment *wanted)
{
    *segment =
        (struct cpu_segment){.space = wanted->space, .size_bytes = (size_t)wanted->size_bytes};
    if (wanted->size_bytes == 0)
        return GT_OK;
    void *memory =
        mmap(NULL, segment->size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return FAIL(GT_NO_MEMORY, "cpu: mmap of %" PRIu64 " B for the arena: %s",
                    wanted->size_bytes, strerror(errno));
#ifdef MADV_HUGEPAGE
    (void)madvise(memory, segment->size_bytes,
                  MADV_HUGEPAGE); /* best effort: kernels without huge pages refuse it */
#endif
    segment->memory = memory;
    return GT_OK;
}

enum gt_status cpu_memory_map(struct cpu_backend *cpu, const struct backend_segment *segments,
                              int32_t count)
{
    uint64_t total = 0, available = 0, need = 0;
    TRY(cpu_memory_read(&total, &available));
    for (int32_t i = 0; i < count; i++)
        need =
            segments[i].size_bytes > UINT64_MAX - need ? UINT64_MAX : need + segments[i].size_bytes;
    if (need > available)
        return FAIL(GT_NO_MEMORY,
                    "cpu: the arena needs %" PRIu64 " B, but only %" PRIu64 " B of %" PRIu64
                    " B are free",
                    need, available, total);
    enum gt_status status = GT_OK;
    for (; cpu->segments < count && status == GT_OK; cpu->segments++)
        status = segment_map(&cpu->segment[cpu->segments], &segments[cpu->segments]);
    for (int32_t i = 0; i < count && status == GT_OK; i++)
        segment_touch(&cpu->segment[i], cpu->threads);
    if (status != GT_OK)
        cpu_memory_unmap(cpu);
    return status;
}

void cpu_memory_unmap(struct cpu_backend *cpu)
{
    for (int32_t i = 0; i < cpu->segments; i++)
        if (cpu->segment[i].memory != NULL)
            munmap(cpu->segment[i].memory, cpu->segment[i].size_bytes);
    cpu->segments = 0;
}
