/* Ends a run whose device no longer responds, with a line that names the pending call. */
#ifndef GPT_TRAIN_TRAIN_WATCHDOG_H
#define GPT_TRAIN_TRAIN_WATCHDOG_H

#include "backend/backend.h"
#include "base/hostmem.h"
#include "base/ticker.h"

struct watchdog {
    struct backend *device; /* a wrapper of backend_wrap() */
    const char *out_dir;
    int64_t seconds;
    uint64_t number;       /* of the call that was pending at the last look */
    int64_t since_ns;      /* when that call was first seen, plus the time that the process was stopped */
    int64_t looked_ns;     /* time of the last look */
    struct ticker *ticker; /* NULL: not watching */
};

/* From now on, a call of the device, including its close, that takes longer than `seconds` ends the process: exit
 * status 1 after one line.  Time during which the process was stopped does not count.  If `seconds` is 0, nothing is
 * watched.  The struct must not move, and `out_dir` must live, until watchdog_stop(); the device may be closed before.
 * Errors: GT_NO_MEMORY, GT_FAILURE. */
enum gt_status watchdog_start(struct watchdog *watchdog, struct hostmem *mem, struct backend *device,
                              const char *out_dir, int64_t seconds);
/* Accepts a zeroed watchdog that was never started. */
void watchdog_stop(struct watchdog *watchdog);

#endif
