/* The arena: segments of device memory, which are proved to exist, and bounds checks of addresses in them. */
#ifndef GPT_TRAIN_OPENCL_OPENCL_MEMORY_H
#define GPT_TRAIN_OPENCL_OPENCL_MEMORY_H

#include "backends/opencl/opencl.h"

/* Returns the device's total and currently free memory, in bytes; `out_basis` names the source of the second number. */
enum gt_status opencl_memory_read(struct opencl_backend *cl, uint64_t *out_total_bytes, uint64_t *out_free_bytes,
                                  const char **out_basis);
/* Creates `count` segments, writes every page of them, and checks samples that a kernel wrote.  On failure no segment
 * remains.  Errors: GT_NO_MEMORY, GT_DEVICE. */
enum gt_status opencl_memory_commit(struct opencl_backend *cl, const struct backend_segment *segments, int32_t count);
void opencl_memory_release(struct opencl_backend *cl);
/* Runs a small kernel whose answer is known.  Errors: GT_DEVICE. */
enum gt_status opencl_memory_known_answer(struct opencl_backend *cl);

#endif
