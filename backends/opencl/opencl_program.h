/* Programs: built once per source and options, from the cache where it has them. */
#ifndef GPT_TRAIN_OPENCL_OPENCL_PROGRAM_H
#define GPT_TRAIN_OPENCL_OPENCL_PROGRAM_H

#include "backends/opencl/opencl.h"

/* The kernel `name` of a source with options, ready to be given arguments.  The strings of both names are kept: literals.
 * Errors: GT_DEVICE with the compiler's first error; GT_NO_MEMORY. */
enum gt_status opencl_kernel_find(struct opencl_backend *cl, const struct opencl_source *source, const char *options,
                                  const char *name, cl_kernel *out);
void opencl_programs_release(struct opencl_backend *cl);

#endif
