/* Tests of the ticker: it ticks at its interval, on a separate thread, and ends on request, even during a long
 * interval. */
#include "base/thread.h"

#include <check.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "base/clock.h"
#include "tests/unit/log_capture.h"
#include "tests/unit/unit_main.h"

#define TICKS 5

struct seen {
    atomic_int ticks;
    pthread_t main;
    atomic_bool other_thread;
};

static void on_tick(void *context)
{
    struct seen *seen = context;
    atomic_store(&seen->other_thread, !pthread_equal(pthread_self(), seen->main));
    atomic_fetch_add(&seen->ticks, 1);
}

TEST_LIMIT(120)

TEST(ticks_and_ends)
{
    const struct timespec moment = {.tv_nsec = 2000000};
    struct seen seen = {.main = pthread_self()};
    struct hostmem *mem;
    struct ticker *ticker;
    ck_assert_int_eq(hostmem_create(&mem), GT_OK);
    const int64_t start_ns = clock_monotonic_ns();
    ck_assert_int_eq(ticker_start(mem, 0.01, on_tick, &seen, &ticker), GT_OK);
    while (atomic_load(&seen.ticks) < TICKS)
        nanosleep(&moment, NULL);
    ck_assert_int_ge(clock_monotonic_ns() - start_ns, TICKS * 10000000);
    hostmem_phase_set(mem, HOSTMEM_CLOSE);
    ticker_stop(ticker);
    const int ticks = atomic_load(&seen.ticks);
    nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
    ck_assert_int_eq(atomic_load(&seen.ticks), ticks);
    ck_assert(atomic_load(&seen.other_thread));
    hostmem_destroy(mem);
}

TEST(does_not_wait_for_the_interval)
{
    struct seen seen = {.main = pthread_self()};
    struct hostmem *mem;
    struct ticker *ticker;
    ck_assert_int_eq(hostmem_create(&mem), GT_OK);
    const int64_t start_ns = clock_monotonic_ns();
    ck_assert_int_eq(ticker_start(mem, 3600.5, on_tick, &seen, &ticker), GT_OK);
    ticker_stop(ticker);
    ticker_stop(NULL);
    ck_assert_int_lt(clock_monotonic_ns() - start_ns, INT64_C(60000000000));
    ck_assert_int_eq(atomic_load(&seen.ticks), 0);
    hostmem_destroy(mem);
}

TEST(refused_memory)
{
    struct log_capture capture;
    struct hostmem *mem;
    struct ticker *ticker;
    ck_assert_int_eq(hostmem_create(&mem), GT_OK);
    log_capture_begin(&capture);
    hostmem_fail_at(mem, 1);
    log_capture_refused(&capture, ticker_start(mem, 1.0, on_tick, NULL, &ticker), GT_NO_MEMORY, "ticker");
    log_capture_end();
    hostmem_destroy(mem);
}
