/* Moves between ranks, and the exchange of words that is made of them.
 *
 * Moves have numbers, in the order in which they are started; a wait is for all below one.  Words go to rank 0, which
 * sends all of them to everyone: two steps whatever the number of ranks.  What carries the bytes is in comm_*.c.
 */
#include "dist/dist.h"

#include <sched.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"

#define PAUSE_NS 100000
#define YIELDS 200

void dist_sign(const struct dist *dist, const char *what)
{
    struct dist_seat *seat = &dist->seat[dist->rank];
    if (what != NULL)
        atomic_store(&seat->what, what);
    atomic_fetch_add(&seat->signs, 1);
}

void dist_iter_set(const struct dist *dist, int64_t iter)
{
    atomic_store(&dist->seat[dist->rank].what, "its update"); /* until an op is known */
    atomic_store(&dist->seat[dist->rank].iter, iter);
}

/* Keeps an error for who watches, and shows it if this rank is the one that ended the run. */
static void seat_sink(void *context, enum log_level level, const char *line)
{
    const char *text = strstr(line, ": ");
    text = text != NULL ? strstr(text + 2, ": ") : NULL;
    if (level == LOG_ERROR)
        (void)snprintf(context, DIST_ERROR_BYTES, "%s", text != NULL ? text + 2 : line);
}

void dist_silence(const struct dist *dist)
{
    log_sink_set(seat_sink, dist->seat[dist->rank].error);
}

void dist_wait(struct dist *dist, uint64_t until)
{
    const struct timespec pause = {.tv_nsec = PAUSE_NS};
    struct dist_seat *seat = &dist->seat[dist->rank];
    for (int tries = 0;; tries++) {
        tries = dist->progress(dist) ? 0 : tries;
        while (dist->done < dist->started && atomic_load(&dist->moves[dist->done % DIST_MOVES_MAX].done))
            dist->done++;
        if (dist->done >= until)
            break;
        if (tries < YIELDS) {
            (void)sched_yield();
            continue;
        }
        atomic_store(&seat->waits_for, dist->moves[dist->done % DIST_MOVES_MAX].peer);
        if (atomic_load(&seat->waits_since_ns) == 0)
            atomic_store(&seat->waits_since_ns, clock_monotonic_ns());
        dist_sign(dist, NULL);
        (void)nanosleep(&pause, NULL);
    }
    atomic_store(&seat->waits_since_ns, 0);
}

static void move_start(struct dist *dist, int32_t peer, bool receive, void *data, size_t bytes)
{
    assert(peer >= 0 && peer < dist->ranks && peer != dist->rank);
    if (dist->started - dist->done == DIST_MOVES_MAX)
        dist_wait(dist, dist->done + 1);
    struct dist_move *move = &dist->moves[dist->started % DIST_MOVES_MAX];
    move->peer = peer;
    move->receive = receive;
    move->data = data;
    move->bytes = bytes;
    atomic_store(&move->done, false);
    dist->started++;
    (void)dist->progress(dist);
}

void dist_send(struct dist *dist, int32_t peer, const void *data, size_t bytes)
{
    union {
        const void *from;
        void *data;
    } end = {data}; /* is not written to */
    move_start(dist, peer, false, end.data, bytes);
}

void dist_receive(struct dist *dist, int32_t peer, void *data, size_t bytes)
{
    move_start(dist, peer, true, data, bytes);
}

void dist_gather(struct dist *dist, const void *mine, size_t bytes, void *all)
{
    const size_t whole = (size_t)dist->ranks * bytes;
    int stop = atomic_load(dist->stop_word), stops[DIST_RANKS_MAX];
    memcpy((char *)all + (size_t)dist->rank * bytes, mine, bytes);
    for (int32_t r = 1; dist->rank == 0 && r < dist->ranks; r++) {
        dist_receive(dist, r, (char *)all + (size_t)r * bytes, bytes);
        dist_receive(dist, r, &stops[r], sizeof stop);
    }
    if (dist->rank == 0) {
        dist_wait(dist, dist->started);
        for (int32_t r = 1; r < dist->ranks; r++)
            stop = stop != 0 ? stop : stops[r];
    } else {
        dist_send(dist, 0, mine, bytes);
        dist_send(dist, 0, &stop, sizeof stop);
        dist_wait(dist, dist->started);
        dist_receive(dist, 0, all, whole);
        dist_receive(dist, 0, &stop, sizeof stop);
    }
    for (int32_t r = 1; dist->rank == 0 && r < dist->ranks; r++) {
        dist_send(dist, r, all, whole);
        dist_send(dist, r, &stop, sizeof stop);
    }
    dist_wait(dist, dist->started);
    dist->stop = stop;
}
