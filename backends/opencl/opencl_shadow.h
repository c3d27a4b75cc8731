/* Places every operand of an op in a cl_mem of exactly its size while the op runs, for tools that detect stray
 * accesses.
 *
 * In the arena, an access beyond a tensor hits another tensor, which no tool can distinguish from a valid access.
 * Slow; enabled by GPT_TRAIN_OPENCL_BUFFER_PER_TENSOR=1.
 */
#ifndef GPT_TRAIN_OPENCL_OPENCL_SHADOW_H
#define GPT_TRAIN_OPENCL_OPENCL_SHADOW_H

#include "backends/opencl/opencl.h"

struct opencl_place {
    cl_mem memory;
    uint64_t offset_bytes;
};

/* Returns NULL when out of memory or not enabled. */
struct opencl_shadow *opencl_shadow_create(void);
void opencl_shadow_destroy(struct opencl_shadow *shadow);
/* Copies the operands of `call` and its workspace to separate memory objects; operands that share bytes share one. */
enum gt_status opencl_shadow_begin(struct opencl_backend *cl, const struct op_call *call);
/* Copies the contents back and releases the objects. */
enum gt_status opencl_shadow_end(struct opencl_backend *cl);
/* Returns the place of the copy of `bytes` bytes at an arena address, which must be in an operand of the running
 * call. */
struct opencl_place opencl_shadow_place(const struct opencl_shadow *shadow, struct address at, size_t bytes);

#endif
