/* Simulates an attacker who predicts temporary names: just before a program creates the file ASIDE_NAME.tmp-DIGITS,
 * this library puts a link to ASIDE_VICTIM there.  It does so only the first times, so that a later try succeeds.
 * ASIDE_REPORT gets a byte for each link.  Preloaded to override the C library's openat; compiled by the test that uses
 * it.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#define TRIES 2

static int tries;

static void plant(int folder, const char *path, int flags)
{
    const char *name = getenv("ASIDE_NAME"), *victim = getenv("ASIDE_VICTIM"), *report = getenv("ASIDE_REPORT");
    const char *slash = strrchr(path, '/'), *base = slash != NULL ? slash + 1 : path;
    if (name == NULL || victim == NULL || report == NULL || (flags & O_CREAT) == 0 || tries == TRIES)
        return;
    const size_t length = strlen(name);
    if (strncmp(base, name, length) != 0 || strncmp(base + length, ".tmp-", 5) != 0 ||
        symlinkat(victim, folder, path) != 0)
        return;
    tries++;
    const int fd = open(report, O_WRONLY | O_CREAT | O_APPEND, 0600);
    if (fd >= 0) {
        (void)!write(fd, "x", 1);
        (void)close(fd);
    }
}

int openat(int folder, const char *path, int flags, ...)
{
    int (*real)(int, const char *, int, ...);
    void *symbol = dlsym(RTLD_NEXT, "openat");
    va_list list;
    va_start(list, flags);
    const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(list, mode_t) : 0;
    va_end(list);
    memcpy(&real, &symbol, sizeof real);
    plant(folder, path, flags);
    return real(folder, path, flags, mode);
}

/* The name in programs with large-file support. */
int openat64(int folder, const char *path, int flags, ...) __attribute__((alias("openat")));
