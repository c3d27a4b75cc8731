/* Launches a kernel: arguments in order, then sizes.
 *
 *     struct opencl_launch launch;
 *     opencl_launch_begin(&launch, backend, &opencl_source_gelu, "-DGT_GROUP=256", "gt_gelu_forward");
 *     opencl_arg_operand(&launch, call, GELU_FORWARD_X);  a pointer and a ulong: (__global const ushort *x, ulong x_at)
 *     opencl_arg_i64(&launch, count);
 *     return opencl_launch_run(&launch, (struct opencl_range){.dims = 1, .global = {n, 1, 1}, .local = {256, 1, 1}});
 *
 * The first error is kept until opencl_launch_run() returns it.  Its log line names the kernel and the CL code.  The
 * first launch of a (source, options) pair builds the program, or takes it from the cache.
 *
 * In kernels, the index of a work-group is (get_global_id(d) - get_local_id(d)) / get_local_size(d), never
 * get_group_id(): a launch may be split along its last dimension into several dispatches with a global offset.
 */
#ifndef GPT_TRAIN_OPENCL_OPENCL_LAUNCH_H
#define GPT_TRAIN_OPENCL_OPENCL_LAUNCH_H

#include "backends/opencl/opencl.h"

struct opencl_launch {
    struct opencl_backend *cl;
    const char *name; /* of the kernel */
    cl_kernel kernel;
    cl_uint args;
    enum gt_status status;
};

/* Numbers of work-items; global is a multiple of local in every dimension (asserted).  No dimension may be 0: callers
 * skip launches without work. */
struct opencl_range {
    cl_uint dims;
    size_t global[3], local[3];
    double flops; /* of the whole launch, for splitting into dispatches; 0: never split */
};

/* Adds `options` to those that every program gets: -cl-std=CL1.2, the device's limits (GT_LOCAL_BYTES,
 * GT_WORK_GROUP_MAX, GT_IS_CPU), and GT_FMA on GPUs with fma.  `kernel` is a literal. */
void opencl_launch_begin(struct opencl_launch *launch, struct backend *backend, const struct opencl_source *source,
                         const char *options, const char *kernel);
/* Passes two arguments: the segment and the operand's offset in elements; NULL and 0 for an absent operand. */
void opencl_arg_operand(struct opencl_launch *launch, const struct op_call *call, int32_t slot);
/* Passes two arguments: the workspace's segment, and the offset of the workspace's byte `first_bytes` in elements of
 * `element_bytes` each. */
void opencl_arg_workspace(struct opencl_launch *launch, const struct op_call *call, size_t first_bytes,
                          size_t element_bytes);
/* Passes two arguments: a cl_mem outside the arena, and an offset in elements. */
void opencl_arg_memory(struct opencl_launch *launch, cl_mem memory, uint64_t first_element);
void opencl_arg_i32(struct opencl_launch *launch, int32_t value);
void opencl_arg_u32(struct opencl_launch *launch, uint32_t value);
void opencl_arg_i64(struct opencl_launch *launch, int64_t value); /* long in the kernel */
void opencl_arg_f32(struct opencl_launch *launch, float value);
/* Errors: GT_DEVICE, GT_NO_MEMORY. */
enum gt_status opencl_launch_run(struct opencl_launch *launch, struct opencl_range range);

static inline size_t opencl_round_up(size_t value, size_t multiple)
{
    return (value + multiple - 1) / multiple * multiple;
}

#endif
