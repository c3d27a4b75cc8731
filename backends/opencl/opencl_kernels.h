/* What the ops' host files share: the sources of the kernels, options, tensors as arguments, usual ranges.
 *
 * A tensor is three arguments, the pointer, its offset in elements and its dtype as an int, which is -1 where an optional
 * operand is absent (GT_TENSOR in kernels/common.clh); an operand of one possible dtype is the first two (GT_ARRAY).
 */
#ifndef GPT_TRAIN_OPENCL_OPENCL_KERNELS_H
#define GPT_TRAIN_OPENCL_OPENCL_KERNELS_H

#include "backends/opencl/opencl_launch.h"

extern const struct opencl_source opencl_source_adamw, opencl_source_adamw_lean, opencl_source_attention_backward,
    opencl_source_attention_forward, opencl_source_bias, opencl_source_blend, opencl_source_cross_entropy,
    opencl_source_dropout, opencl_source_embed, opencl_source_fill_copy, opencl_source_gelu, opencl_source_gemm,
    opencl_source_gemm_few, opencl_source_gemm_matrix, opencl_source_gemm_single, opencl_source_gradient_round,
    opencl_source_layernorm, opencl_source_muon, opencl_source_norm, opencl_source_residual;

/* Work-items of a group where columns are independent. */
#define OPENCL_COLUMN_ITEMS 64
/* How many parts a sum over rows is made of at most; the workspaces of plans for other devices count with no more. */
#define OPENCL_PARTS_MAX 128
#define OPENCL_PART_ROWS 32

/* A sum over rows, cut by its shape. */
struct opencl_parts {
    int64_t rows, parts, part_rows; /* parts * part_rows >= rows; no part is empty */
};

struct opencl_parts opencl_parts_of(int64_t rows);

/* Starts a kernel of a source that is built with GT_GROUP, and with the device's exact division where it has one. */
void opencl_group_begin(struct opencl_launch *launch, struct backend *backend, const struct opencl_source *source,
                        const char *kernel);
/* GT_GROUP: work-items of a group that reduces. */
int32_t opencl_group_items(const struct backend *backend);

/* GT_TENSOR. */
void opencl_arg_tensor(struct opencl_launch *launch, const struct op_call *call, int32_t slot);

/* What adamw and adamw_lean have in common: beta1, 1 - beta1, beta2, 1 - beta2, epsilon, weight decay, and the rows of the
 * operand `corrections`; differences are computed here, in the order in which the cpu backend does it. */
void opencl_arg_adamw(struct opencl_launch *launch, const struct op_call *call, int32_t corrections);

/* One work-item per element; one group of GT_GROUP for each of `groups`; one work-item per column of each of `rows`. */
enum gt_status opencl_run_elements(struct opencl_launch *launch, int64_t count);
enum gt_status opencl_run_groups(struct opencl_launch *launch, int64_t groups, double flops);
enum gt_status opencl_run_columns(struct opencl_launch *launch, int64_t columns, int64_t rows, double flops);

/* out (+)= the sum over parts of the workspace's [parts, columns] floats from byte `first` on. */
enum gt_status opencl_run_parts_sum(struct backend *backend, const struct op_call *call, size_t first_bytes,
                                    int64_t parts, int32_t out);

/* Every operand that is there is fp32, bf16 or fp16, or int32. */
bool opencl_floats_supported(const struct backend *backend, const struct op_call *call);
/* The device's fp32 has subnormals, without which the exact ops cannot have their bits. */
bool opencl_exact_supported(const struct backend *backend, const struct op_call *call);

static inline int64_t opencl_min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

#endif
