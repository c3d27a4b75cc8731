/* The start of the programs that have a struct config: the command line, --help, --version and
 * --list-devices.
 *
 * It is separate from program.c because it refers to the backends, which gpt-prepare does not link.
 */

#include "cli/program_start.h"

#include <sys/resource.h>

#include "backend/backend_call.h"
#include "backend/backend_holders.h"
#include "backend/backend_registry.h"
#include "config/config_args.h"
#include "config/config_help.h"
#include "config/config_key.h"
#include "plan/device_profile.h"

#define STACK_BYTES_MIN ((rlim_t)256 << 10)

/* Paths and lines are on the stack, and the limit also sets the stack size of new threads. */
static enum gt_status stack_check(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_STACK, &limit) != 0 || limit.rlim_cur >= STACK_BYTES_MIN)
        return GT_OK;
    return FAIL(GT_FAILURE, "the stack is limited to %s (ulimit -s), at least %s are needed",
                LOG_BYTES(limit.rlim_cur), LOG_BYTES(STACK_BYTES_MIN));
}

static enum gt_status device_print(const struct backend_ops *ops, int32_t index)
{
    struct backend_open_options options = {.device = index};
    struct backend *device;
    struct backend_info info;
    TRY(ops->open(&options, &device));
    enum gt_status status = backend_info(device, &info);
    if (status == GT_OK) {
        char holders[BACKEND_HOLDERS_TEXT_MAX], dtypes[128] = "";
        for (int dtype = 0; dtype < DTYPE_COUNT; dtype++)
            if (info.dtypes >> dtype & 1u)
                snprintf(dtypes + strlen(dtypes), sizeof dtypes - strlen(dtypes), " %s",
                         dtype_name((enum dtype)dtype));
        log_result("%s:%" PRId32 "  %s  %s in total, %s free, dtypes%s", ops->name, index,
                   info.device, LOG_BYTES(info.total_bytes), LOG_BYTES(info.free_bytes), dtypes);
        log_result("       %s%s%s", info.detail, info.limits[0] != '\0' ? "; " : "", info.limits);
        if (info.largest_allocation_bytes < info.total_bytes)
            log_result("       largest allocation %s", LOG_BYTES(info.largest_allocation_bytes));
        if (backend_holders_read(holders, device)[0] != '\0')
            log_result("       most memory in other processes: %s", holders);
    }
    backend_close(device);
    return status;
}

/* Lists all devices.  One that cannot be opened gives a log line; the others are still listed. */
static enum gt_status devices_print(void)
{
    enum gt_status last = GT_OK;
    int32_t listed = 0;
    for (const struct backend_ops *const *ops = backend_registry(); *ops; ops++) {
        struct backend_devices devices;
        (*ops)->devices(false, &devices);
        if (devices.count == 0)
            printf("%s:   none; %s\n", (*ops)->name, devices.reason);
        for (int32_t i = 0; i < devices.count; i++) {
            enum gt_status status = device_print(*ops, i);
            listed += status == GT_OK;
            last = status == GT_OK ? last : status;
        }
    }
    return listed > 0 ? GT_OK : last;
}

enum gt_status program_start(struct config *config, enum config_program program, const char *name,
                             int argc, char **argv, bool *answered)
{
    *answered = false;
    program_begin(name);
    TRY(stack_check());
    config_defaults(config, program);
    for (const struct backend_ops *const *ops = backend_registry(); *ops; ops++)
        config_backend_add(config, (*ops)->name);
    TRY(config_parse_args(config, argc, argv));
    bool profiles = strcmp(config->device_profile, "list") == 0;
    *answered = config->help || config->version || config->list_devices || profiles;
    if (config->help)
        config_print_help(stdout, program, config->help == CONFIG_HELP_ALL);
    else if (config->version)
        program_version_print(name);
    else if (config->list_devices)
        return devices_print();
    else if (profiles)
        device_profile_print_list(stdout);
    return GT_OK;
}
