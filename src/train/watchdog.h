/* Ends a run whose device no longer answers, with a line that says what was waited for. */
#ifndef GPT_TRAIN_TRAIN_WATCHDOG_H
#define GPT_TRAIN_TRAIN_WATCHDOG_H

#include "backend/backend.h"
#include "base/hostmem.h"
#include "base/ticker.h"

struct watchdog {
    struct backend *device; /* a wrapper of backend_wrap() */
    const char *out_dir;
    int64_t seconds;
    uint64_t number;       /* of the call that was waited for at the last look */
    int64_t since_ns;      /* it is waited for, later by the time that the process was stopped */
    int64_t looked_ns;     /* the last look */
    struct ticker *ticker; /* NULL: no watch */
};

/* From now on a call of the device, its close too, that takes longer than `seconds` in which the process was not stopped ends
 * the process: exit status 1 after one line.  0 seconds: no watch.  The watchdog stays where it is until watchdog_stop(), and `out_dir` lives until then; the
 * device may be closed before.  Errors: GT_NO_MEMORY, GT_FAILURE. */
enum gt_status watchdog_start(struct watchdog *watchdog, struct hostmem *mem, struct backend *device,
                              const char *out_dir, int64_t seconds);
/* Accepts one that was zeroed and never started. */
void watchdog_stop(struct watchdog *watchdog);

#endif
