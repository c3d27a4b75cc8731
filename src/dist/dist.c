/* Moves between ranks, and the exchange of words that is made of them.
 *
 * Moves have numbers, in the order in which they are started; a wait is for all below one.  Words go to rank 0, which
 * sends all of them to everyone: two steps whatever the number of ranks.  What carries the bytes is in comm_shm.c.
 */
#include "dist/dist.h"

#include <sched.h>
#include <string.h>
#include <time.h>

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
    atomic_store(&dist->seat[dist->rank].iter, iter);
}

void dist_wait(struct dist *dist, uint64_t until)
{
    const struct timespec pause = {.tv_nsec = PAUSE_NS};
    for (int tries = 0;; tries++) {
        tries = dist->progress(dist) ? 0 : tries;
        while (dist->done < dist->started && atomic_load(&dist->moves[dist->done % DIST_MOVES_MAX].done))
            dist->done++;
        if (dist->done >= until)
            return;
        if (tries < YIELDS) {
            (void)sched_yield();
            continue;
        }
        dist_sign(dist, "its wait for the other ranks");
        (void)nanosleep(&pause, NULL);
    }
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
