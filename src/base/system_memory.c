/* The memory that this process may use.
 *
 * The available memory is the smallest of MemAvailable, the rest under the limits of the process's
 * cgroups, and the unused part of its address space (ulimit -v).  Page cache that the kernel can
 * drop counts as free.  Nothing is allocated to test this, so the result is an estimate, not a
 * guarantee.
 */
#include "base/system_memory.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/file.h"
#include "base/platform.h"

#define LINE_MAX_BYTES 1024

/* Reads the first number of the first line of `path` that starts with `key` ("" for any line) and a
 * number.  Returns false when there is none. */
static bool number_read(const char *path, const char *key, uint64_t *out)
{
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return false;
    char line[LINE_MAX_BYTES];
    bool found = false;
    while (!found && fgets(line, sizeof line, file) != NULL)
        found = strncmp(line, key, strlen(key)) == 0 &&
                sscanf(line + strlen(key), " %" SCNu64, out) == 1;
    fclose(file);
    return found;
}

/* Visits ROOT/MOUNT and each folder from there down to `cgroup` ("/", "/a/b"). */
static void chain_visit(const char *root, const char *mount, const char *cgroup, bool unified,
                        cgroup_fn *visit, void *context)
{
    char folder[FILE_PATH_MAX];
    const int base = snprintf(folder, sizeof folder, "%s/%s", root, mount);
    const size_t length = strlen(cgroup);
    if (base < 0 || (size_t)base + length >= sizeof folder)
        return;
    memcpy(folder + base, cgroup, length + 1);
    for (size_t end = (size_t)base + length; end >= (size_t)base && end > 0; end--) {
        if (end != (size_t)base && folder[end] != '/' && folder[end] != '\0')
            continue;
        folder[end] = '\0';
        visit(context, folder, unified);
    }
}

/* Lines are "ID:CONTROLLERS:PATH", with ID 0 and no controllers for v2.  A mount point of v1 has
 * the name of one controller or of all; one of v2 is `root`, or below it "unified". */
void cgroups_visit(const char *membership, const char *root, const char *controller,
                   cgroup_fn *visit, void *context)
{
    char line[LINE_MAX_BYTES];
    FILE *file = fopen(membership, "re");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        char *controllers = strchr(line, ':');
        char *cgroup = controllers != NULL ? strchr(controllers + 1, ':') : NULL;
        if (cgroup == NULL)
            continue;
        *controllers++ = '\0';
        *cgroup++ = '\0';
        const bool unified = strcmp(line, "0") == 0 && *controllers == '\0';
        if (!unified && strstr(TEXT(LINE_MAX_BYTES + 2, ",%s,", controllers),
                               TEXT(32, ",%s,", controller)) == NULL)
            continue;
        chain_visit(root, unified ? "" : controllers, cgroup, unified, visit, context);
        chain_visit(root, unified ? "unified" : controller, cgroup, unified, visit, context);
    }
    if (file != NULL)
        fclose(file);
}

struct limits {
    uint64_t *total, *available;
};

/* Applies the limit of one cgroup.  Droppable page cache does not count as usage. */
static void limit_apply(void *context, const char *folder, bool unified)
{
    const struct limits *limits = context;
    uint64_t limit_bytes = 0, usage_bytes = 0, cache_bytes = 0;
    if (!number_read(FILE_IN(folder, unified ? "memory.max" : "memory.limit_in_bytes"), "",
                     &limit_bytes))
        return; /* absent, or "max" */
    if (limit_bytes < *limits->total)
        *limits->total = limit_bytes;
    (void)number_read(FILE_IN(folder, unified ? "memory.current" : "memory.usage_in_bytes"), "",
                      &usage_bytes);
    const char *path = FILE_IN(folder, "memory.stat");
    if (!number_read(path, "total_inactive_file ", &cache_bytes))
        (void)number_read(path, "inactive_file ", &cache_bytes);
    usage_bytes = usage_bytes > cache_bytes ? usage_bytes - cache_bytes : 0;
    const uint64_t left = limit_bytes > usage_bytes ? limit_bytes - usage_bytes : 0;
    if (left < *limits->available)
        *limits->available = left;
}

void system_memory_limit(const char *membership, const char *root, uint64_t *total_bytes,
                         uint64_t *free_bytes)
{
    cgroups_visit(membership, root, "memory", limit_apply,
                  &(struct limits){total_bytes, free_bytes});
}

/* Lowers *total_bytes to the limit of the process's address space (RLIMIT_AS), *free_bytes to the
 * unused part of it. */
static void system_memory_space_limit(uint64_t *total_bytes, uint64_t *free_bytes)
{
    struct rlimit limit;
    uint64_t pages = 0;
    const long page = sysconf(_SC_PAGESIZE);
    if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
        return;
    const uint64_t most = (uint64_t)limit.rlim_cur;
    if (!number_read("/proc/self/statm", "", &pages) || page <= 0)
        pages = 0;
    const uint64_t used = pages * (uint64_t)(page > 0 ? page : 0);
    const uint64_t left = most > used ? most - used : 0;
    *total_bytes = most < *total_bytes ? most : *total_bytes;
    *free_bytes = left < *free_bytes ? left : *free_bytes;
}

/* As system_memory_read(), without the limit of the address space. */
static bool machine_read(uint64_t *out_total_bytes, uint64_t *out_free_bytes)
{
    uint64_t total = 0, available = 0;
    const char *path = "/proc/meminfo";
    if (number_read(path, "MemTotal:", &total) && number_read(path, "MemAvailable:", &available)) {
        total *= 1024;
        available *= 1024;
    } else {
        const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
        if (pages <= 0 || page <= 0)
            return false;
        total = available = (uint64_t)pages * (uint64_t)page;
    }
    system_memory_limit("/proc/self/cgroup", "/sys/fs/cgroup", &total, &available);
    *out_total_bytes = total;
    *out_free_bytes = available;
    return true;
}

bool system_memory_read(uint64_t *out_total_bytes, uint64_t *out_free_bytes)
{
    if (!machine_read(out_total_bytes, out_free_bytes))
        return false;
    system_memory_space_limit(out_total_bytes, out_free_bytes);
    return true;
}

bool system_memory_space_is_limit(void)
{
    uint64_t total = 0, available = 0;
    if (!machine_read(&total, &available))
        return false;
    const uint64_t before = available;
    system_memory_space_limit(&total, &available);
    return available < before;
}

/* ---- what this process uses ---- */

/* Returns the value of the field `name` of /proc/self/status, converted from kB to bytes; 0 when it
 * cannot be read. Without stdio, so that a query does not allocate and may be made in the RUN
 * phase. */
static size_t status_field_bytes(const char *name)
{
    char text[4096];
    int fd = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    ssize_t count = read(fd, text, sizeof text - 1);
    close(fd);
    if (count <= 0)
        return 0;
    text[count] = '\0';
    const char *field = strstr(text, name);
    return field ? (size_t)strtoull(field + strlen(name), NULL, 10) * 1024 : 0;
}

size_t process_rss_bytes(void)
{
    return status_field_bytes("VmRSS:");
}

size_t process_rss_bytes_max(void)
{
    /* The kernel updates VmHWM only occasionally.  Without /proc, getrusage() knows the peak. */
    size_t bytes = status_field_bytes("VmHWM:"), now = status_field_bytes("VmRSS:");
    struct rusage usage;
    bytes = now > bytes ? now : bytes;
    if (bytes == 0 && getrusage(RUSAGE_SELF, &usage) == 0)
        bytes = (size_t)usage.ru_maxrss * PLATFORM_MAXRSS_BYTES;
    return bytes;
}
