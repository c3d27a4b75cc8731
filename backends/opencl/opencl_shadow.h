/* For tools that look for stray accesses: every operand of an op in a cl_mem of exactly its bytes while the op runs.
 *
 * In the arena an access beyond a tensor hits another tensor, which no tool can tell from a right one.  Slow; switched on by
 * GPT_TRAIN_OPENCL_BUFFER_PER_TENSOR=1.
 */
#ifndef GPT_TRAIN_OPENCL_OPENCL_SHADOW_H
#define GPT_TRAIN_OPENCL_OPENCL_SHADOW_H

#include "backends/opencl/opencl.h"

struct opencl_place {
    cl_mem memory;
    uint64_t offset_bytes;
};

/* NULL without memory, or when it is not asked for. */
struct opencl_shadow *opencl_shadow_create(void);
void opencl_shadow_destroy(struct opencl_shadow *shadow);
/* Copies the operands of `call` and its workspace into memories of their own; operands that share bytes share one. */
enum gt_status opencl_shadow_begin(struct opencl_backend *cl, const struct op_call *call);
/* Copies back and releases. */
enum gt_status opencl_shadow_end(struct opencl_backend *cl);
/* Where the copy of `bytes` bytes at an address of the arena lies; must be within an operand of the running call. */
struct opencl_place opencl_shadow_place(const struct opencl_shadow *shadow, struct address at, size_t bytes);

#endif
