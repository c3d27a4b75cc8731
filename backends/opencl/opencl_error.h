/* Errors of OpenCL: the names of codes, and what is logged when a call fails. */
#ifndef GPT_TRAIN_OPENCL_OPENCL_ERROR_H
#define GPT_TRAIN_OPENCL_OPENCL_ERROR_H

#include "backends/opencl/opencl.h"

/* Returns the name of a CL error code, such as "CL_OUT_OF_RESOURCES", or "code -1234" for an
 * unknown one. */
#define OPENCL_CODE_TEXT_MAX 48
const char *opencl_code_text(char text[static OPENCL_CODE_TEXT_MAX], cl_int code);
/* Logs an error, or stores it in cl->trying if that is set. */
void opencl_error(struct opencl_backend *cl, const char *format, ...) LOG_PRINTF(2, 3);
/* Logs one line about a failed call, "opencl: WHAT on DEVICE: CL_OUT_OF_RESOURCES".  Returns
 * GT_NO_MEMORY when the code means that, else GT_DEVICE.  After a code that means a lost device,
 * later calls log nothing. */
enum gt_status opencl_failure(struct opencl_backend *cl, const char *what, cl_int code);

#define CL_TRY(cl, what, call)                             \
    do {                                                   \
        const cl_int cl_code_ = (call);                    \
        if (cl_code_ != CL_SUCCESS)                        \
            return opencl_failure((cl), (what), cl_code_); \
    } while (0)

#endif
