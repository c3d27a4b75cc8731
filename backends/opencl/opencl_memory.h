/* The arena, whose segments are proved to exist. */
#ifndef GPT_TRAIN_OPENCL_OPENCL_MEMORY_H
#define GPT_TRAIN_OPENCL_OPENCL_MEMORY_H

#include "backends/opencl/opencl.h"

/* Returns the device's free memory, in bytes; `out_basis` names the source of the number. */
enum gt_status opencl_memory_read(struct opencl_backend *cl, uint64_t *out_free_bytes,
                                  const char **out_basis);
/* Creates `count` segments, writes every page of them, and checks samples that a kernel wrote.  On
 * failure no segment remains.  Errors: GT_NO_MEMORY, GT_DEVICE. */
enum gt_status opencl_memory_commit(struct opencl_backend *cl,
                                    const struct backend_segment *segments, int32_t count);
void opencl_memory_release(struct opencl_backend *cl);

#endif
