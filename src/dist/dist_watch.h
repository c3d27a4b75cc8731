/* Looks after ranks: which gives no sign of life, which is late, and the line that names one that ended the run. */
#ifndef GPT_TRAIN_DIST_DIST_WATCH_H
#define GPT_TRAIN_DIST_DIST_WATCH_H

#include "dist/dist.h"

#define DIST_GRACE_NS INT64_C(2000000000) /* for rank 0 to print its own error, if all ranks have the same one */

struct dist_watch {
    int64_t looked_ns; /* when dist_watch_silent() was last called */
    struct {
        uint64_t signs;
        int64_t silent_ns;
        bool ended; /* it is no longer looked at */
        bool late;  /* the user has been told */
    } rank[DIST_RANKS_MAX];
};

/* Returns a rank from `begin` on and below `end` that has given no sign of life for dist->timeout_s, or -1.  Call it a
 * few times per second; time in which this process itself was stopped does not count.  Logs a note, once per rank, if
 * another waits for it for long. */
int32_t dist_watch_silent(struct dist_watch *watch, const struct dist *dist, int32_t begin, int32_t end);
/* Logs that a rank "was ended by signal" 9, or the like, where it was last seen, and that all end.  Returns 1. */
int dist_watch_end(const struct dist *dist, int32_t rank, const char *how, int64_t number, const char *unit);

#endif
