/* Moves between ranks, and the exchange of words that is made of them.
 *
 * Moves have numbers, in the order in which they are started; a wait is for all moves below a
 * number.  Words go to rank 0, which sends all of them to everyone: two steps whatever the number
 * of ranks.  What carries the bytes is in comm_*.c.
 *
 * Every rank counts signs of life in its seat, from a thread of its own.  A rank that waits names
 * the rank that it waits for, which is late.  Only rank 0 may be late without a note: it has the
 * terminal, and saves and samples alone.
 */
#include "dist/dist.h"

#include <sched.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/size.h"

#define PAUSE_NS 100000
#define YIELDS 200
/* Time between two checks beyond this does not count against a rank. */
#define POLL_MAX_NS INT64_C(200000000)
/* Without a check for this long, this process was stopped, and may be the one that failed. */
#define STOPPED_NS INT64_C(500000000)
#define STOPPED_GRACE_NS INT64_C(3000000000) /* time for the others to end it then */
#define LATE_S 10

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

/* Keeps an error for the process that watches, and shows it if this rank is the one that ended the
 * run. */
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
        while (dist->done < dist->started &&
               atomic_load(&dist->moves[dist->done % DIST_MOVES_MAX].done))
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
    move_start(dist, peer, false, (void *)(uintptr_t)data, bytes); /* is not written to */
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

/* ---- looking after ranks ---- */

/* Returns " on HOST", or nothing if all ranks are on one. */
static const char *host_text(const struct dist *dist, int32_t rank,
                             char text[static DIST_NAME_BYTES + 8])
{
    const char *host = dist->host[rank];
    (void)snprintf(text, DIST_NAME_BYTES + 8, "%s%s", host[0] != '\0' ? " on " : "", host);
    return text;
}

static const char *place_text(const struct dist *dist, int32_t rank, char text[static 128])
{
    const struct dist_seat *seat = &dist->seat[rank];
    const char *what = atomic_load(&seat->what);
    const long long iter = atomic_load(&seat->iter);
    if (atomic_load(&seat->waits_since_ns) != 0)
        (void)snprintf(text, 128, "iter %lld in its wait for rank %d", iter,
                       atomic_load(&seat->waits_for));
    else
        (void)snprintf(text, 128, "iter %lld in %.90s", iter, what != NULL ? what : "its start");
    return text;
}

/* Logs a note about the rank that `waiting` waits for, if the wait is long. */
static void late_note(struct dist_watch *watch, const struct dist *dist, int32_t waiting)
{
    const struct dist_seat *seat = &dist->seat[waiting];
    const int64_t since_ns = atomic_load(&seat->waits_since_ns);
    const int32_t late = atomic_load(&seat->waits_for);
    char host[DIST_NAME_BYTES + 8], place[128];
    if (since_ns == 0 || clock_monotonic_ns() - since_ns < LATE_S * INT64_C(1000000000) ||
        late == 0 || watch->rank[late].late || atomic_load(&dist->seat[late].waits_since_ns) != 0)
        return;
    watch->rank[late].late = true;
    log_note("rank %" PRId32 " has waited %d s for rank %" PRId32 "%s, last seen at %s", waiting,
             LATE_S, late, host_text(dist, late, host), place_text(dist, late, place));
}

int32_t dist_watch_silent(struct dist_watch *watch, const struct dist *dist, int32_t begin,
                          int32_t end)
{
    const int64_t now_ns = clock_monotonic_ns();
    const int64_t gap_ns = watch->looked_ns > 0 ? now_ns - watch->looked_ns : 0;
    watch->looked_ns = now_ns;
    for (int32_t r = begin; r < end; r++) {
        const uint64_t signs = atomic_load(&dist->seat[r].signs);
        int64_t *silent_ns = &watch->rank[r].silent_ns;
        *silent_ns = signs == watch->rank[r].signs ? *silent_ns + min_i64(gap_ns, POLL_MAX_NS) : 0;
        if (gap_ns > STOPPED_NS)
            *silent_ns = -STOPPED_GRACE_NS;
        watch->rank[r].signs = signs;
        if (!watch->rank[r].ended && *silent_ns > dist->timeout_s * 1000000000)
            return r;
        late_note(watch, dist, r);
    }
    return -1;
}

void dist_unanswered(struct dist *dist)
{
    const int code =
        dist_watch_end(dist, dist->rank, "has had no answer from NCCL for", dist->timeout_s, " s");
    (void)fflush(NULL);
    if (dist->close != NULL)
        dist->close(dist, code);
    _exit(code); /* the main thread is within NCCL */
}

int dist_watch_end(const struct dist *dist, int32_t rank, const char *how, int64_t number,
                   const char *unit)
{
    char host[DIST_NAME_BYTES + 8], place[128];
    log_error("rank %" PRId32 "%s %s %" PRId64
              "%s, last seen at %s; all ranks were ended, and the last checkpoint is "
              "unchanged",
              rank, host_text(dist, rank, host), how, number, unit, place_text(dist, rank, place));
    return 1;
}
