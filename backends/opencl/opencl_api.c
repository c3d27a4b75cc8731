/* Opens the ICD loader and looks up the functions of opencl_api.def in it; names of error codes.
 *
 * GPT_TRAIN_OPENCL_LIBRARY replaces libOpenCL.so.1, for systems with another location and for tests.  The loader itself
 * decides which drivers it finds (OCL_ICD_VENDORS, /etc/OpenCL/vendors).  It stays loaded, because drivers leave
 * threads and exit handlers behind.
 */
#include "backends/opencl/opencl_api.h"

#include <dlfcn.h>

#include "base/module.h"
#include "base/platform.h"

static const struct library_entry entries[] = {
#define OPENCL_FUNCTION(function) {#function, offsetof(struct opencl_api, function)},
#include "backends/opencl/opencl_api.def"
#undef OPENCL_FUNCTION
};

enum gt_status opencl_api_open(struct opencl_api *out)
{
    const char *wanted = getenv("GPT_TRAIN_OPENCL_LIBRARY");
    const char *name = wanted != NULL && *wanted != '\0' ? wanted : PLATFORM_OPENCL;
    struct opencl_api api = {.library = dlopen(name, RTLD_NOW | RTLD_LOCAL)};
    if (api.library == NULL) {
        const char *why = dlerror();
        return FAIL(GT_DEVICE,
                    "opencl: the ICD loader cannot be opened: %s (Debian: apt-get install ocl-icd-libopencl1)",
                    why != NULL ? why : name);
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

/* clang-format off */
#define CODE(name) {CL_##name, "CL_" #name}
static const struct {
    cl_int code;
    const char *name;
} code_names[] = {
    CODE(DEVICE_NOT_FOUND), CODE(DEVICE_NOT_AVAILABLE), CODE(COMPILER_NOT_AVAILABLE),
    CODE(MEM_OBJECT_ALLOCATION_FAILURE), CODE(OUT_OF_RESOURCES), CODE(OUT_OF_HOST_MEMORY), CODE(MEM_COPY_OVERLAP),
    CODE(BUILD_PROGRAM_FAILURE), CODE(MAP_FAILURE), CODE(MISALIGNED_SUB_BUFFER_OFFSET),
    CODE(EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST), CODE(INVALID_VALUE), CODE(INVALID_PLATFORM),
    CODE(INVALID_DEVICE), CODE(INVALID_CONTEXT), CODE(INVALID_COMMAND_QUEUE), CODE(INVALID_HOST_PTR),
    CODE(INVALID_MEM_OBJECT), CODE(INVALID_BINARY), CODE(INVALID_BUILD_OPTIONS), CODE(INVALID_PROGRAM),
    CODE(INVALID_PROGRAM_EXECUTABLE), CODE(INVALID_KERNEL_NAME), CODE(INVALID_KERNEL_DEFINITION),
    CODE(INVALID_KERNEL), CODE(INVALID_ARG_INDEX), CODE(INVALID_ARG_VALUE), CODE(INVALID_ARG_SIZE),
    CODE(INVALID_KERNEL_ARGS), CODE(INVALID_WORK_DIMENSION), CODE(INVALID_WORK_GROUP_SIZE),
    CODE(INVALID_WORK_ITEM_SIZE), CODE(INVALID_GLOBAL_OFFSET), CODE(INVALID_EVENT_WAIT_LIST), CODE(INVALID_EVENT),
    CODE(INVALID_OPERATION), CODE(INVALID_BUFFER_SIZE), CODE(INVALID_GLOBAL_WORK_SIZE),
    {OPENCL_PLATFORM_NOT_FOUND, "CL_PLATFORM_NOT_FOUND_KHR"},
};
/* clang-format on */

const char *opencl_code_text(char text[static OPENCL_CODE_TEXT_MAX], cl_int code)
{
    snprintf(text, OPENCL_CODE_TEXT_MAX, "code %d", (int)code);
    for (size_t i = 0; i < sizeof code_names / sizeof code_names[0]; i++)
        if (code_names[i].code == code)
            snprintf(text, OPENCL_CODE_TEXT_MAX, "%s", code_names[i].name);
    return text;
}
