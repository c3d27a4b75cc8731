/* Overrides the C library's wall clock: CLOCK_REALTIME and time() return another time at each call, from 1970 to 2106,
 * backwards and forwards.  Monotonic clocks are unchanged.  Compiled by the test that uses it.
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static uint32_t jump(void)
{
    static uint32_t state = 12345;
    state = state * 1664525u + 1013904223u;
    return state;
}

static unsigned long calls;

__attribute__((destructor)) static void report(void)
{
    const char *path = getenv("CLOCK_JUMPS_REPORT");
    FILE *file = path != NULL ? fopen(path, "w") : NULL;
    if (file == NULL)
        return;
    fprintf(file, "%lu\n", calls);
    fclose(file);
}

int clock_gettime(clockid_t clock, struct timespec *out)
{
    if (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE)
        return (int)syscall(SYS_clock_gettime, clock, out);
    calls++;
    *out = (struct timespec){.tv_sec = (time_t)jump(), .tv_nsec = (long)(jump() % 1000000000u)};
    return 0;
}

time_t time(time_t *out)
{
    calls++;
    const time_t now = (time_t)jump();
    if (out != NULL)
        *out = now;
    return now;
}

int gettimeofday(struct timeval *restrict out, void *restrict zone)
{
    (void)zone;
    calls++;
    *out = (struct timeval){.tv_sec = (time_t)jump(), .tv_usec = (suseconds_t)(jump() % 1000000u)};
    return 0;
}
