/* Tests of base/clock: the monotonic clock advances, the wall clock agrees with time(), and the text forms of both. */
#include "base/clock.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/unit/unit_main.h"

TEST(clocks_run)
{
    const int64_t start_ns = clock_monotonic_ns();
    int64_t last_ns = start_ns;
    for (int i = 0; i < 10000; i++) {
        const int64_t now_ns = clock_monotonic_ns();
        ck_assert_int_ge(now_ns, last_ns);
        last_ns = now_ns;
    }
    const struct timespec pause = {.tv_nsec = 2000000};
    (void)nanosleep(&pause, NULL);
    ck_assert_int_ge(clock_monotonic_ns() - start_ns, 2000000);
    const int64_t difference_s = (int64_t)clock_wall_seconds() - (int64_t)time(NULL);
    ck_assert(difference_s >= -1 && difference_s <= 1);
}

static const struct {
    double seconds;
    const char *text;
} durations[] = {
    {0.0, "0.0 ms"},
    {0.00044, "0.4 ms"},
    {0.00994, "9.9 ms"},
    {0.00996, "10 ms"},
    {0.033, "33 ms"},
    {0.9994, "999 ms"},
    {0.9996, "1.0 s"},
    {4.2, "4.2 s"},
    {59.94, "59.9 s"},
    {59.96, "1 min 00 s"},
    {200.0, "3 min 20 s"},
    {3599.4, "59 min 59 s"},
    {3599.6, "1 h 00 min"},
    {3720.0, "1 h 02 min"},
    {86400.0, "24 h 00 min"},
    {359940.0, "99 h 59 min"},
    {360000.0, "4 d 04 h"},
    {8640000.0, "100 d 00 h"},
    {31557000.0, "365 d 06 h"},
    {31557600.0, "1.0 years"},
    {50.5e6, "1.6 years"},
    {3.1e9, "98.2 years"},
    {3.2e9, "101 years"},
    {9e14, "28519279 years"},
    {-1.0, "unknown"},
    {(double)INFINITY, "unknown"},
    {1e300, "unknown"},
};

TEST_LOOP(duration, (int)(sizeof durations / sizeof durations[0]))
{
    char text[32];
    ck_assert_ptr_eq(clock_duration(text, durations[_i].seconds), text);
    ck_assert_str_eq(text, durations[_i].text);
    ck_assert_str_eq(clock_duration(text, (double)NAN), "unknown");
}

TEST(wall_text)
{
    char text[32];
    ck_assert_int_eq(setenv("TZ", "UTC0", 1), 0);
    tzset();
    ck_assert_str_eq(clock_wall_text(text, 1706933100), "Sat 2024-02-03 04:05");
    ck_assert_str_eq(clock_wall_text(text, 0), "Thu 1970-01-01 00:00");
    ck_assert_ptr_nonnull(clock_wall_text(text, INT64_MAX));
    ck_assert_int_eq(setenv("TZ", "XYZ-5:30", 1), 0); /* local time: half past five ahead of UTC */
    tzset();
    ck_assert_str_eq(clock_wall_text(text, 1706933100), "Sat 2024-02-03 09:35");

    const time_t soon = time(NULL) + 3600;
    struct tm local;
    char wanted[32];
    ck_assert_ptr_nonnull(localtime_r(&soon, &local));
    ck_assert_uint_gt(strftime(wanted, sizeof wanted, "%a %H:%M", &local), 0);
    ck_assert_str_eq(clock_wall_text(text, (int64_t)soon), wanted);
    clock_wall_text(text, (int64_t)soon + 90000);
    ck_assert_uint_eq(strlen(text), strlen("Sat 2024-02-03 04:05"));
}
