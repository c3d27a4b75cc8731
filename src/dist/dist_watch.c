/* Looks after ranks.
 *
 * Every rank counts signs of life in its seat, from a thread of its own.  A rank that waits says for whom; the one that
 * it waits for is late.  Only rank 0 may be late without a note: it has the terminal, and saves and samples alone.
 */
#include "dist/dist_watch.h"

#include <unistd.h>

#include "base/clock.h"
#include "base/size.h"

#define LOOK_MOST_NS INT64_C(200000000) /* time between looks beyond this was not the ranks' */
#define STOPPED_NS INT64_C(500000000)   /* without a look: this process was stopped, perhaps is the one that failed */
#define STOPPED_GRACE_NS INT64_C(3000000000) /* for the others to end it */
#define LATE_S 10

/* Returns " on HOST", or nothing if all ranks are on one. */
static const char *host_text(const struct dist *dist, int32_t rank, char text[static DIST_NAME_BYTES + 8])
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
        (void)snprintf(text, 128, "iter %lld in its wait for rank %d", iter, atomic_load(&seat->waits_for));
    else
        (void)snprintf(text, 128, "iter %lld in %.90s", iter, what != NULL ? what : "its start");
    return text;
}

/* Notes the rank that `waiting` waits for, if that takes long. */
static void late_note(struct dist_watch *watch, const struct dist *dist, int32_t waiting)
{
    const struct dist_seat *seat = &dist->seat[waiting];
    const int64_t since_ns = atomic_load(&seat->waits_since_ns);
    const int32_t late = atomic_load(&seat->waits_for);
    char host[DIST_NAME_BYTES + 8], place[128];
    if (since_ns == 0 || clock_monotonic_ns() - since_ns < LATE_S * INT64_C(1000000000) || late == 0 ||
        watch->rank[late].late || atomic_load(&dist->seat[late].waits_since_ns) != 0)
        return;
    watch->rank[late].late = true;
    log_note("rank %" PRId32 " has waited %d s for rank %" PRId32 "%s, last seen at %s", waiting, LATE_S, late,
             host_text(dist, late, host), place_text(dist, late, place));
}

int32_t dist_watch_silent(struct dist_watch *watch, const struct dist *dist, int32_t begin, int32_t end)
{
    const int64_t now_ns = clock_monotonic_ns();
    const int64_t gap_ns = watch->looked_ns > 0 ? now_ns - watch->looked_ns : 0;
    watch->looked_ns = now_ns;
    for (int32_t r = begin; r < end; r++) {
        const uint64_t signs = atomic_load(&dist->seat[r].signs);
        int64_t *silent_ns = &watch->rank[r].silent_ns;
        *silent_ns = signs == watch->rank[r].signs ? *silent_ns + min_i64(gap_ns, LOOK_MOST_NS) : 0;
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
    const int code = dist_watch_end(dist, dist->rank, "has had no answer of NCCL for", dist->timeout_s, " s");
    (void)fflush(NULL);
    if (dist->close != NULL)
        dist->close(dist, code);
    _exit(code); /* the main thread is within NCCL */
}

int dist_watch_end(const struct dist *dist, int32_t rank, const char *how, int64_t number, const char *unit)
{
    char host[DIST_NAME_BYTES + 8], place[128];
    log_error("rank %" PRId32 "%s %s %" PRId64 "%s, last seen at %s; all ranks were ended, and the last checkpoint is "
              "unchanged",
              rank, host_text(dist, rank, host), how, number, unit, place_text(dist, rank, place));
    return 1;
}
