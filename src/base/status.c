/* Status codes: names and exit statuses.
 *
 * The switches over the enumeration have no default label, so that the compiler warns about a missing code.  A value
 * outside the enumeration reaches the return after the switch.
 */
#include "base/status.h"

int status_exit_code(enum gt_status status)
{
    switch (status) {
    case GT_OK:
        return 0;
    case GT_USAGE:
    case GT_DATA:
    case GT_UNSUPPORTED:
        return 2;
    case GT_NO_FIT:
        return 3;
    case GT_FAILURE:
    case GT_NO_MEMORY:
    case GT_IO:
    case GT_DEVICE:
    case GT_STOPPED:
        return 1;
    }
    return 1;
}

const char *status_name(enum gt_status status)
{
    switch (status) {
    case GT_OK:
        return "ok";
    case GT_FAILURE:
        return "failure";
    case GT_USAGE:
        return "usage";
    case GT_NO_FIT:
        return "no-fit";
    case GT_NO_MEMORY:
        return "no-memory";
    case GT_IO:
        return "io";
    case GT_DATA:
        return "data";
    case GT_DEVICE:
        return "device";
    case GT_UNSUPPORTED:
        return "unsupported";
    case GT_STOPPED:
        return "stopped";
    }
    return "unknown";
}
