/* Status codes, the return values of functions that can fail.
 *
 * Zero is success, negative values are failures.  The function that detects an error logs it once,
 * with the numbers; its callers pass the status on with TRY().  Only main() turns a status into an
 * exit status.
 *
 * Almost every file includes this one, and through it the log and the standard headers that almost
 * every file needs.
 */
#ifndef GPT_TRAIN_BASE_STATUS_H
#define GPT_TRAIN_BASE_STATUS_H

#include "base/log.h"

enum gt_status {
    GT_OK = 0,
    GT_FAILURE = -1,   /* a run-time failure that has no more specific code */
    GT_USAGE = -2,     /* a bad key, value, flag or profile: exit status 2 */
    GT_NO_FIT = -3,    /* a valid configuration that does not fit the memory: exit status 3 */
    GT_NO_MEMORY = -4, /* the system refused memory */
    GT_IO = -5,        /* a system call on a file failed */
    GT_DATA = -6,      /* a file whose content is not what it claims to be: exit status 2 */
    GT_DEVICE = -7,    /* a device is absent, lost or failing */
    GT_UNSUPPORTED =
        -8,            /* a combination that this build or device does not support: exit status 2 */
    GT_STOPPED = -9,   /* a signal requested a stop; the caller has saved */
    GT_DIVERGED = -10, /* a value that the model computes is not finite */
};

/* The exit status for `status`: 0 success, 1 run-time failure, 2 bad usage or bad file, 3 does not
 * fit.  main() handles 128+n for a signal itself. */
int status_exit_code(enum gt_status status);

/* A short name such as "no-memory", for logs and tests. */
const char *status_name(enum gt_status status);

/* Returns the status of `call` from the enclosing function unless it is GT_OK. */
#define TRY(call)                            \
    do {                                     \
        enum gt_status try_status_ = (call); \
        if (try_status_ != GT_OK)            \
            return try_status_;              \
    } while (0)

/* As TRY, for functions that own resources: does nothing unless `status` is GT_OK, else stores that
 * of `call` in it. */
#define THEN(status, call) ((status) = (status) == GT_OK ? (call) : (status))

/* Ends a function that makes an object: return FINISH(status, out, object, hostmem_free).  Sets
 * *out to the object if `status` is GT_OK, else destroys it.  Has the value `status`. */
#define FINISH(status, out, object, destroy) \
    ((status) == GT_OK ? (void)(*(out) = (object)) : destroy(object), (status))

/* As TRY, for functions that own resources: stores the status in `status` and jumps to `label` on
 * failure. */
#define TRY_GOTO(status, label, call) \
    do {                              \
        (status) = (call);            \
        if ((status) != GT_OK)        \
            goto label;               \
    } while (0)

/* Logs an error and has the value `status`: return FAIL(GT_DATA, "%s: is empty", path). */
#define FAIL(status, ...) (log_error(__VA_ARGS__), (status))

#endif
