/* Launches of kernels, and what the ops' host files share: sources, arguments, common numbers of
 * work-items.
 *
 * A kernel gets operands first, then values.  `forms` has a letter per operand, in the op's order:
 *     t  a tensor: the pointer, its offset in elements, and its dtype as an int, which is -1 for an
 *        absent optional operand (GT_TENSOR in kernels/common.clh)
 *     a  an array, for an operand with only one possible dtype: the pointer and its offset in
 *        elements (GT_ARRAY)
 *     -  an operand that the kernel does not get; the string may also be shorter than the list of
 *        operands
 * The letter w stands for no operand: it passes the workspace, as an array of floats.
 *
 * A launch keeps its first error until opencl_launch_run() returns it.  The error's log line names
 * the kernel and the CL code.  The first launch of a (source, options) pair builds the program, or
 * takes it from the cache.
 *
 * In kernels, the index of a work-group is (get_global_id(0) - get_local_id(0)) /
 * get_local_size(0), never get_group_id(): opencl_launch_run() may split a launch into several
 * dispatches, each with a global offset.
 */
#ifndef GPT_TRAIN_OPENCL_OPENCL_LAUNCH_H
#define GPT_TRAIN_OPENCL_OPENCL_LAUNCH_H

#include "backends/opencl/opencl.h"
#include "base/size.h"

extern const struct opencl_source opencl_source_adamw_lean, opencl_source_attention_backward,
    opencl_source_attention_forward, opencl_source_cross_entropy, opencl_source_delta,
    opencl_source_elementwise, opencl_source_embed, opencl_source_gate, opencl_source_gelu,
    opencl_source_gemm, opencl_source_gemm_few, opencl_source_gemm_matrix,
    opencl_source_gemm_single, opencl_source_layernorm, opencl_source_muon, opencl_source_norm,
    opencl_source_rope;

/* A value that a kernel receives, as int, uint, long or float. */
struct opencl_value {
    size_t size;
    union {
        cl_int i;
        cl_uint u;
        cl_long l;
        cl_float f;
    } as;
};
#define I32(value) ((struct opencl_value){sizeof(cl_int), {.i = (cl_int)(value)}})
#define U32(value) ((struct opencl_value){sizeof(cl_uint), {.u = (value)}})
#define I64(value) ((struct opencl_value){sizeof(cl_long), {.l = (cl_long)(value)}})
#define F32(value) ((struct opencl_value){sizeof(cl_float), {.f = (value)}})
#define VALUES_END ((struct opencl_value){0, {0}})
#define VALUES(...) ((const struct opencl_value[]){__VA_ARGS__, VALUES_END})
#define NO_VALUES ((const struct opencl_value[]){VALUES_END})

struct opencl_launch {
    struct opencl_backend *cl;
    const char *name; /* of the kernel */
    cl_kernel kernel;
    cl_uint args;
    enum gt_status status;
};

/* Begins a launch of `kernel`.  Adds `options` to those that every program gets: -cl-std=CL1.2, and
 * GT_FMA on GPUs with fma.  `kernel` is a literal. */
void opencl_launch_begin(struct opencl_launch *launch, struct opencl_backend *cl,
                         const struct opencl_source *source, const char *options,
                         const char *kernel);
void opencl_arg_operands(struct opencl_launch *launch, const struct op_call *call,
                         const char *forms);
/* Passes an operand as a tensor. */
void opencl_arg_tensor(struct opencl_launch *launch, const struct op_call *call, int32_t slot);
/* Passes the array in `memory`, which lies outside the arena, from `first_element` on. */
void opencl_arg_memory(struct opencl_launch *launch, cl_mem memory, uint64_t first_element);
void opencl_arg_values(struct opencl_launch *launch, const struct opencl_value *values);
/* Runs `groups` groups of `items` work-items; both must be at least 1, so callers skip launches
 * without work.  `flops` is the work of the whole launch, for splitting it into dispatches; 0
 * means: do not split.  Errors: GT_DEVICE, GT_NO_MEMORY. */
enum gt_status opencl_launch_run(struct opencl_launch *launch, int64_t groups, size_t items,
                                 double flops);
/* As opencl_launch_run(), with one work-item per column, for each of `rows` rows (gt_column() in
 * common.clh). */
enum gt_status opencl_launch_columns(struct opencl_launch *launch, int64_t columns, int64_t rows,
                                     double flops);

#endif
