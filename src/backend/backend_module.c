/* The cuda backend as a module.
 *
 * It is loaded when a device is requested, and stays loaded, so this file keeps no state.
 */
#include "backend/backend.h"
#include "dist/dist.h"

static void module_devices(bool automatic, struct backend_devices *out)
{
    bool absent;
    struct backend_devices none = {.first = -1};
    const struct backend_module *module =
        module_load("cuda", BACKEND_MODULE_ABI, none.reason, &absent);
    if (module != NULL) {
        module->ops->devices(automatic, out);
        return;
    }
    if (automatic && absent)
        none.reason[0] = '\0';
    *out = none;
}

static enum gt_status module_open(const struct backend_open_options *options, struct backend **out)
{
    bool absent;
    char reason[MODULE_REASON_MAX];
    const struct backend_module *module = module_load("cuda", BACKEND_MODULE_ABI, reason, &absent);
    if (module != NULL)
        return module->ops->open(options, out);
    return FAIL(GT_DEVICE, ERROR_NO_DEVICE "cuda: %s", reason);
}

/* The backend that open() returns has the module's own table. */
const struct backend_ops module_backend_ops = {
    .name = "cuda", .devices = module_devices, .open = module_open};
