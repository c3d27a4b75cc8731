/* Stops on request.
 *
 * The flag and the address where ranks keep it are mutable globals, like the log's sink, because a
 * signal handler receives no context.  The first signal only sets the flag, the second ends the
 * process.  The loop checks it between micro-steps.
 */
#include "session/stop.h"

#include <signal.h>
#include <stddef.h>
#include <unistd.h>

static volatile sig_atomic_t stop_signal;
static atomic_int
    *received; /* where ranks keep a signal until all of them have agreed on it, or NULL */

static void on_signal(int number)
{
    static volatile sig_atomic_t again;
    if (again)
        _exit(128 + number);
    again = 1;
    if (received != NULL)
        atomic_store(received, number);
    else
        stop_signal = number;
}

void stop_share(atomic_int *where)
{
    received = where;
}

void stop_agree(int number)
{
    stop_signal = number;
}

void stop_install(void)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        struct sigaction old;
        if (sigaction(numbers[i], NULL, &old) == 0 && old.sa_handler == SIG_IGN)
            continue;
        struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
        sigemptyset(&action.sa_mask);
        sigaction(numbers[i], &action, NULL);
    }
}

void stop_ignore_writes(void)
{
    signal(SIGPIPE, SIG_IGN);
    /* A write beyond RLIMIT_FSIZE then fails with EFBIG, like any other failed write. */
    signal(SIGXFSZ, SIG_IGN);
}

int stop_requested(void)
{
    return (int)stop_signal;
}
