/* Errors of OpenCL: the names of codes, and what is logged when a call fails.
 *
 * After a code that means a lost device, later calls fail without a message.  While something is
 * tried that may fail, its error is kept as a reason and not logged.
 */
#include "backends/opencl/opencl_error.h"

#include <stdarg.h>

#define NVIDIA_ILLEGAL_ACCESS (-9999)
#define ERROR_TEXT_MAX 768

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

void opencl_error(struct opencl_backend *cl, const char *format, ...)
{
    char text[ERROR_TEXT_MAX];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (cl->trying != NULL)
        snprintf(cl->trying, BACKEND_REASON_MAX, "%.*s", BACKEND_REASON_MAX - 1, text);
    else
        log_error("opencl: %s", text);
}

enum gt_status opencl_failure(struct opencl_backend *cl, const char *what, cl_int code)
{
    static const cl_int lost[] = {
        CL_DEVICE_NOT_AVAILABLE,  CL_OUT_OF_RESOURCES,
        CL_INVALID_COMMAND_QUEUE, CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST,
        CL_INVALID_CONTEXT,       NVIDIA_ILLEGAL_ACCESS};
    char text[OPENCL_CODE_TEXT_MAX];
    if (cl->is_lost)
        return GT_DEVICE;
    for (size_t i = 0; i < sizeof lost / sizeof lost[0]; i++)
        cl->is_lost = cl->is_lost || (code == lost[i] && cl->trying == NULL);
    opencl_error(cl, "%s on %s (driver %s): %s%s", what, cl->device.name, cl->device.driver,
                 opencl_code_text(text, code),
                 cl->is_lost ? "; the device is lost or out of resources" : "");
    return code == CL_MEM_OBJECT_ALLOCATION_FAILURE || code == CL_OUT_OF_HOST_MEMORY ? GT_NO_MEMORY
                                                                                     : GT_DEVICE;
}
