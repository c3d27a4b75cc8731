/* Products on matrix units: the shapes of their tiles, and launches of kernels/gemm_matrix.cl. */
#ifndef GPT_TRAIN_OPENCL_OPENCL_GEMM_MATRIX_H
#define GPT_TRAIN_OPENCL_OPENCL_GEMM_MATRIX_H

#include "backends/opencl/opencl_kernels.h"

/* A square tile of d, cut among warps of 32 work-items, down x across. */
struct opencl_matrix_shape {
    const char *name;
    int32_t tile, warps_down, warps_across;
};

/* Largest first. */
extern const struct opencl_matrix_shape opencl_matrix_shapes[];
extern const int32_t opencl_matrix_shape_count;

/* d[m, n] (+)= op(a) op(b) + bias; a and b of `dtype`.  is_wide: every row of both begins at a multiple of 16 bytes. */
struct opencl_matrix_product {
    enum dtype dtype;
    int64_t m, n, k;
    bool transpose_a, transpose_b, accumulate, is_wide;
};

/* A device may allow too few work-items or too little local memory for a shape. */
bool opencl_matrix_shape_fits(const struct opencl_backend *cl, const struct opencl_matrix_shape *shape);

/* Starts the kernel, whose arguments are then a and b without their dtypes, bias and d with; and ends it. */
void opencl_matrix_begin(struct opencl_launch *launch, struct opencl_backend *cl,
                         const struct opencl_matrix_shape *shape, const struct opencl_matrix_product *product);
enum gt_status opencl_matrix_end(struct opencl_launch *launch, const struct opencl_matrix_shape *shape,
                                 const struct opencl_matrix_product *product);

/* Whether matrix units compute this product; and computing it. */
bool opencl_matrix_takes(const struct opencl_backend *cl, const struct op_call *call);
enum gt_status opencl_matrix_run(struct backend *backend, const struct op_call *call);

#endif
