/* A thread that calls a function periodically.
 *
 * It sleeps on a condition variable, so that ticker_stop() does not have to wait for the end of the interval.  It
 * blocks all signals, which belong to the main thread.  Intervals use the monotonic clock, so changes of the wall clock
 * do not affect them.
 */
#include "base/ticker.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>

#include "base/log.h"

#define NS_PER_SECOND 1000000000

struct ticker {
    struct hostmem *mem;
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t ended;
    bool end; /* protected by the mutex */
    long interval_ns;
    time_t interval_s;
    ticker_fn *tick;
    void *context;
};

static struct timespec next_after(const struct ticker *ticker)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    at.tv_sec += ticker->interval_s;
    at.tv_nsec += ticker->interval_ns;
    if (at.tv_nsec >= NS_PER_SECOND) {
        at.tv_sec++;
        at.tv_nsec -= NS_PER_SECOND;
    }
    return at;
}

/* Sleeps for one interval.  Returns true when the ticker must end. */
static bool interval_end(struct ticker *ticker)
{
    struct timespec until = next_after(ticker);
    pthread_mutex_lock(&ticker->mutex);
    int error = 0;
    while (!ticker->end && error != ETIMEDOUT)
        error = pthread_cond_timedwait(&ticker->ended, &ticker->mutex, &until);
    bool end = ticker->end;
    pthread_mutex_unlock(&ticker->mutex);
    return end;
}

static void *ticker_run(void *argument)
{
    struct ticker *ticker = argument;
    while (!interval_end(ticker))
        ticker->tick(ticker->context);
    return NULL;
}

/* With default attributes and the monotonic clock, Linux refuses neither. */
static void locks_create(struct ticker *ticker)
{
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&ticker->ended, &attributes);
    pthread_condattr_destroy(&attributes);
    pthread_mutex_init(&ticker->mutex, NULL);
}

static void ticker_destroy(struct ticker *ticker)
{
    pthread_cond_destroy(&ticker->ended);
    pthread_mutex_destroy(&ticker->mutex);
    hostmem_free(ticker->mem, ticker);
}

static int thread_create(struct ticker *ticker)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&ticker->thread, NULL, ticker_run, ticker);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

enum gt_status ticker_start(struct hostmem *mem, double seconds, ticker_fn *tick, void *context, struct ticker **out)
{
    struct ticker *ticker;
    assert(seconds > 0.0 && tick != NULL);
    TRY(HOSTMEM_NEW(mem, 1, "ticker", &ticker));
    ticker->mem = mem;
    ticker->tick = tick;
    ticker->context = context;
    ticker->interval_s = (time_t)seconds;
    ticker->interval_ns = (long)((seconds - (double)ticker->interval_s) * NS_PER_SECOND);
    locks_create(ticker);
    const int error = thread_create(ticker);
    if (error == 0) {
        *out = ticker;
        return GT_OK;
    }
    ticker_destroy(ticker);
    log_error("cannot start a thread that watches: %s", strerror(error));
    return GT_FAILURE;
}

void ticker_stop(struct ticker *ticker)
{
    if (ticker == NULL)
        return;
    pthread_mutex_lock(&ticker->mutex);
    ticker->end = true;
    pthread_cond_signal(&ticker->ended);
    pthread_mutex_unlock(&ticker->mutex);
    pthread_join(ticker->thread, NULL);
    ticker_destroy(ticker);
}
