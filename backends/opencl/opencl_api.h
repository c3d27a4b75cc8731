/* The ICD loader, opened at run time.
 *
 * A build needs only the headers.  A program with this backend also starts on a machine without OpenCL; open() then
 * logs one line.  cl->api.clFinish(queue) calls the function.  Types are taken from CL/cl.h, so the compiler checks
 * calls.
 */
#ifndef GPT_TRAIN_OPENCL_OPENCL_API_H
#define GPT_TRAIN_OPENCL_OPENCL_API_H

#ifndef CL_TARGET_OPENCL_VERSION
#define CL_TARGET_OPENCL_VERSION 120
#endif
#ifndef CL_USE_DEPRECATED_OPENCL_1_2_APIS
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS
#endif
#include <CL/cl.h>

#include "base/status.h"

#define OPENCL_PLATFORM_NOT_FOUND (-1001) /* CL_PLATFORM_NOT_FOUND_KHR of the loader */

struct opencl_api {
    void *library;
#define OPENCL_FUNCTION(name) __typeof__(&name) name;
#include "backends/opencl/opencl_api.def"
#undef OPENCL_FUNCTION
};

/* Returns the name of a CL error code, such as "CL_OUT_OF_RESOURCES", or "code -1234" for an unknown one. */
#define OPENCL_CODE_TEXT_MAX 48
const char *opencl_code_text(char text[static OPENCL_CODE_TEXT_MAX], cl_int code);

/* Errors: GT_DEVICE, logged, when the loader is not installed or lacks a function of OpenCL 1.2. */
enum gt_status opencl_api_open(struct opencl_api *out);

#endif
