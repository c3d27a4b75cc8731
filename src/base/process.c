/* What the system says of this process: the resident set from /proc/self/status, where there is one, else getrusage().
 * It is read without stdio, so that asking does not allocate and can be done in the RUN phase.  Nothing is cached: every
 * call asks again.
 */
#include "base/process.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* The number of kB behind `name` in /proc/self/status, in bytes. */
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
    /* The kernel brings its high water up to date now and then only. */
    size_t bytes = status_field_bytes("VmHWM:"), now = status_field_bytes("VmRSS:");
    struct rusage usage;
    bytes = now > bytes ? now : bytes;
    if (bytes == 0 && getrusage(RUSAGE_SELF, &usage) == 0)
        bytes = (size_t)usage.ru_maxrss * 1024;
    return bytes;
}
