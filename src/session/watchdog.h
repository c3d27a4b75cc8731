/* Ends a process whose device no longer responds. */
#ifndef GPT_TRAIN_SESSION_WATCHDOG_H
#define GPT_TRAIN_SESSION_WATCHDOG_H

#include "backend/backend_call.h"
#include "base/thread.h"

struct watchdog {
    const struct backend_record *record; /* of the device's calls */
    const char *device;                  /* the backend's name */
    const char *out_dir;
    int64_t seconds;
    uint64_t number; /* of the call that was pending at the last check */
    /* When that call was first seen, plus the time that the process was stopped. */
    int64_t since_ns;
    int64_t checked_ns;    /* time of the last check */
    struct ticker *ticker; /* NULL: not watching */
};

/* From now on, a call that `device` records and that takes longer than `seconds` ends the process
 * with exit status 1, after one log line.  Closing the device counts too; time during which the
 * process was stopped does not.  If `seconds` is 0, nothing is watched.  The struct must not move,
 * and the record and `out_dir` must live, until ticker_stop(watchdog->ticker).  Errors:
 * GT_NO_MEMORY, GT_FAILURE. */
enum gt_status watchdog_start(struct watchdog *watchdog, struct hostmem *mem,
                              struct backend *device, const char *out_dir, int64_t seconds);

#endif
