/* The table of status codes.
 *
 * A code has a name for logs and tests, and the exit status of a program that ends with it.
 */
#include "base/status.h"

static const struct {
    const char *name;
    int exit_code;
} codes[] = {
    [-GT_OK] = {"ok", 0},
    [-GT_FAILURE] = {"failure", 1},
    [-GT_USAGE] = {"usage", 2},
    [-GT_NO_FIT] = {"no-fit", 3},
    [-GT_NO_MEMORY] = {"no-memory", 1},
    [-GT_IO] = {"io", 1},
    [-GT_DATA] = {"data", 2},
    [-GT_DEVICE] = {"device", 1},
    [-GT_UNSUPPORTED] = {"unsupported", 2},
    [-GT_STOPPED] = {"stopped", 1},
    [-GT_DIVERGED] = {"diverged", 1},
};

int status_exit_code(enum gt_status status)
{
    return codes[-status].exit_code;
}

const char *status_name(enum gt_status status)
{
    return codes[-status].name;
}
