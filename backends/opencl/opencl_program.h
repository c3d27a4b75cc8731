/* Programs: built once per source and options, or loaded from the cache. */
#ifndef GPT_TRAIN_OPENCL_OPENCL_PROGRAM_H
#define GPT_TRAIN_OPENCL_OPENCL_PROGRAM_H

#include "backends/opencl/opencl.h"

/* Returns the kernel `name` of a source built with `options`, ready for its arguments.  The pointers `source` and
 * `name` are kept, so `name` must be a literal.  Errors: GT_DEVICE with the compiler's first error; GT_NO_MEMORY;
 * GT_UNSUPPORTED when a table is full. */
enum gt_status opencl_kernel_find(struct opencl_backend *cl, const struct opencl_source *source, const char *options,
                                  const char *name, cl_kernel *out);
void opencl_programs_release(struct opencl_backend *cl);

#endif
