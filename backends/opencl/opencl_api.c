/* Opens the ICD loader and looks up the functions of opencl_api.def in it.
 *
 * GPT_TRAIN_OPENCL_LIBRARY replaces libOpenCL.so.1, for systems with another location and for tests.  The loader itself
 * decides which drivers it finds (OCL_ICD_VENDORS, /etc/OpenCL/vendors).  It stays loaded, because drivers leave
 * threads and exit handlers behind.
 */
#include "backends/opencl/opencl_api.h"

#include <dlfcn.h>
#include <stddef.h>
#include <stdlib.h>

#include "base/library.h"
#include "base/log.h"

static const struct library_entry entries[] = {
#define OPENCL_FUNCTION(function) {#function, offsetof(struct opencl_api, function)},
#include "backends/opencl/opencl_api.def"
#undef OPENCL_FUNCTION
};

enum gt_status opencl_api_open(struct opencl_api *out)
{
    const char *wanted = getenv("GPT_TRAIN_OPENCL_LIBRARY");
    const char *name = wanted != NULL && *wanted != '\0' ? wanted : OPENCL_LIBRARY;
    struct opencl_api api = {.library = dlopen(name, RTLD_NOW | RTLD_LOCAL)};
    if (api.library == NULL) {
        const char *why = dlerror();
        log_error("opencl: the ICD loader cannot be opened: %s (Debian: apt-get install ocl-icd-libopencl1)",
                  why != NULL ? why : name);
        return GT_DEVICE;
    }
    const char *missing = library_table(api.library, entries, sizeof entries / sizeof entries[0], &api);
    if (missing != NULL) {
        log_error("opencl: %s has no %s: it is older than OpenCL 1.2", name, missing);
        dlclose(api.library);
        return GT_DEVICE;
    }
    *out = api;
    return GT_OK;
}
