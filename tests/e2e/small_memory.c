/* Another machine's memory: files of the folder SMALL_MEMORY, "meminfo", "cgroup" and "memory.max",
 * in place of /proc/meminfo, /proc/self/cgroup and those below /sys/fs/cgroup.  From opening
 * SMALL_MEMORY_LATER of /proc/meminfo on, "meminfo.later".  Preloaded to override the C library's
 * fopen64; compiled by the test that uses it.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int openings;

FILE *fopen64(const char *path, const char *mode)
{
    FILE *(*real)(const char *, const char *);
    void *symbol = dlsym(RTLD_NEXT, "fopen64");
    const char *folder = getenv("SMALL_MEMORY"), *later = getenv("SMALL_MEMORY_LATER"),
               *name = strrchr(path, '/');
    char other[4096];
    memcpy(&real, &symbol, sizeof real);
    const int is_info = strcmp(path, "/proc/meminfo") == 0;
    if (folder == NULL || name == NULL ||
        !(is_info || strcmp(path, "/proc/self/cgroup") == 0 ||
          strncmp(path, "/sys/fs/cgroup/", 15) == 0))
        return real(path, mode);
    openings += is_info;
    snprintf(other, sizeof other, "%s%s%s", folder, name,
             is_info && later != NULL && openings >= atoi(later) ? ".later" : "");
    return real(other, mode);
}
