/* Memory usage of this process: the resident set from /proc/self/status if it exists, else the peak from getrusage().
 * The file is read without stdio, so that a query does not allocate and may be made in the RUN phase. */
#include "base/process.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* Returns the value of the field `name` of /proc/self/status, converted from kB to bytes; 0 when it cannot be read. */
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
    /* The kernel updates VmHWM only occasionally. */
    size_t bytes = status_field_bytes("VmHWM:"), now = status_field_bytes("VmRSS:");
    struct rusage usage;
    bytes = now > bytes ? now : bytes;
    if (bytes == 0 && getrusage(RUSAGE_SELF, &usage) == 0)
        bytes = (size_t)usage.ru_maxrss * 1024;
    return bytes;
}
