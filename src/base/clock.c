/* Time: two clocks, and two functions that format time for display.
 *
 * Durations are rounded before the unit is chosen, so that "60.0 s" and "60 min" never appear.  The
 * program stays in the "C" locale, so day names are English.  No computation of the training itself
 * uses this file.
 */
#include "base/clock.h"

#include <math.h>
#include <time.h>

#define YEAR_S (365.25 * 86400.0)

int64_t clock_monotonic_ns(void)
{
    struct timespec now = {0};
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + (int64_t)now.tv_nsec;
}

double clock_wall_seconds(void)
{
    struct timespec now = {0};
    (void)clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

char *clock_duration(char text[static 32], double seconds)
{
    enum { SIZE = 32 };
    if (!(seconds >= 0.0 && seconds < 1e15)) {
        (void)snprintf(text, SIZE, "unknown");
        return text;
    }
    const long long whole_s = llround(seconds);
    const long long whole_min = llround(seconds / 60.0);
    const long long whole_h = llround(seconds / 3600.0);
    if (seconds < 0.00995)
        (void)snprintf(text, SIZE, "%.1f ms", seconds * 1e3);
    else if (seconds < 0.9995)
        (void)snprintf(text, SIZE, "%.0f ms", seconds * 1e3);
    else if (seconds < 59.95)
        (void)snprintf(text, SIZE, "%.1f s", seconds);
    else if (whole_s < 3600)
        (void)snprintf(text, SIZE, "%lld min %02lld s", whole_s / 60, whole_s % 60);
    else if (whole_min < 100 * 60)
        (void)snprintf(text, SIZE, "%lld h %02lld min", whole_min / 60, whole_min % 60);
    else if (seconds < YEAR_S)
        (void)snprintf(text, SIZE, "%lld d %02lld h", whole_h / 24, whole_h % 24);
    else
        (void)snprintf(text, SIZE, "%.*f years", seconds < 99.95 * YEAR_S ? 1 : 0,
                       seconds / YEAR_S);
    return text;
}

char *clock_wall_text(char text[static 32], int64_t wall_s)
{
    enum { SIZE = 32, DAY_S = 86400 };
    const time_t when = (time_t)wall_s;
    struct tm local;
    const int64_t now_s = (int64_t)clock_wall_seconds();
    const bool near = wall_s >= now_s - DAY_S && wall_s <= now_s + DAY_S;
    if ((int64_t)when != wall_s || localtime_r(&when, &local) == NULL ||
        strftime(text, SIZE, near ? "%a %H:%M" : "%a %Y-%m-%d %H:%M", &local) == 0)
        (void)snprintf(text, SIZE, "unknown");
    return text;
}
