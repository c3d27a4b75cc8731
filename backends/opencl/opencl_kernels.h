/* Helpers shared by the ops' host files: kernel sources, options, tensor arguments, common ranges.
 *
 * A tensor is three arguments: the pointer, its offset in elements, and its dtype as an int, which is -1 for an absent
 * optional operand (GT_TENSOR in kernels/common.clh).  An operand with only one possible dtype is the first two
 * (GT_ARRAY).
 */
#ifndef GPT_TRAIN_OPENCL_OPENCL_KERNELS_H
#define GPT_TRAIN_OPENCL_OPENCL_KERNELS_H

#include "backends/opencl/opencl_launch.h"
#include "base/size.h"

extern const struct opencl_source opencl_source_adamw, opencl_source_adamw_lean, opencl_source_attention_backward,
    opencl_source_attention_forward, opencl_source_bias, opencl_source_blend, opencl_source_cross_entropy,
    opencl_source_dropout, opencl_source_embed, opencl_source_fill_copy, opencl_source_gelu, opencl_source_gemm,
    opencl_source_gemm_few, opencl_source_gemm_matrix, opencl_source_gemm_single, opencl_source_gradient_round,
    opencl_source_layernorm, opencl_source_muon, opencl_source_norm, opencl_source_residual;

/* Work-items per group in kernels whose columns are independent. */
#define OPENCL_COLUMN_ITEMS 64
/* The largest number of parts in a sum over rows.  At most OP_PARTIAL_ROWS, for which plans for other devices
 * provide. */
#define OPENCL_PARTS_MAX 128
#define OPENCL_PART_ROWS 32

/* A sum over rows, divided into parts by its shape alone. */
struct opencl_parts {
    int64_t rows, parts, part_rows; /* parts * part_rows >= rows; no part is empty */
};

struct opencl_parts opencl_parts_of(int64_t rows);

/* Begins a launch from a source built with GT_GROUP, and with the device's exact division if it has that. */
void opencl_group_begin(struct opencl_launch *launch, struct backend *backend, const struct opencl_source *source,
                        const char *kernel);
/* Returns GT_GROUP: the work-items in a group that reduces. */
int32_t opencl_group_items(const struct backend *backend);

/* Passes an operand as GT_TENSOR. */
void opencl_arg_tensor(struct opencl_launch *launch, const struct op_call *call, int32_t slot);

/* Passes the arguments that adamw and adamw_lean share: beta1, 1 - beta1, beta2, 1 - beta2, epsilon, weight decay, and
 * the number of rows of the operand `corrections`.  The differences are computed here, in the cpu backend's order. */
void opencl_arg_adamw(struct opencl_launch *launch, const struct op_call *call, int32_t corrections);

/* Run one work-item per element; one group of GT_GROUP for each of `groups`; one work-item per column, for each of
 * `rows` rows. */
enum gt_status opencl_run_elements(struct opencl_launch *launch, int64_t count);
enum gt_status opencl_run_groups(struct opencl_launch *launch, int64_t groups, double flops);
enum gt_status opencl_run_columns(struct opencl_launch *launch, int64_t columns, int64_t rows, double flops);

/* out (+)= the sum over parts of the floats [parts, columns] at byte `first_bytes` of the workspace. */
enum gt_status opencl_run_parts_sum(struct backend *backend, const struct op_call *call, size_t first_bytes,
                                    int64_t parts, int32_t out);

/* Returns true when every present operand is fp32, bf16, fp16 or int32. */
bool opencl_floats_supported(const struct backend *backend, const struct op_call *call);
/* Returns true when the device's fp32 has subnormals, which bit-exact ops need. */
bool opencl_exact_supported(const struct backend *backend, const struct op_call *call);

#endif
