/* Products on matrix units: tile shapes, and launches of kernels/gemm_matrix.cl. */
#ifndef GPT_TRAIN_OPENCL_OPENCL_GEMM_MATRIX_H
#define GPT_TRAIN_OPENCL_OPENCL_GEMM_MATRIX_H

#include "backends/opencl/opencl_kernels.h"

/* A square tile of d, divided among warps of 32 work-items: warps_down x warps_across. */
struct opencl_matrix_shape {
    const char *name;
    int32_t tile, warps_down, warps_across;
};

/* Largest first. */
extern const struct opencl_matrix_shape opencl_matrix_shapes[];
extern const int32_t opencl_matrix_shape_count;

/* d[m, n] (+)= op(a) op(b) + bias, with a and b of `dtype`.  is_wide: all their rows begin at multiples of 16 bytes. */
struct opencl_matrix_product {
    enum dtype dtype;
    int64_t m, n, k;
    bool transpose_a, transpose_b, accumulate, is_wide;
};

/* Returns false when the device allows too few work-items or too little local memory for the shape. */
bool opencl_matrix_shape_fits(const struct opencl_backend *cl, const struct opencl_matrix_shape *shape);

/* begin() starts the launch.  The caller then passes a and b without dtypes, and bias and d with dtypes; end() adds the
 * remaining arguments and runs it. */
void opencl_matrix_begin(struct opencl_launch *launch, struct opencl_backend *cl,
                         const struct opencl_matrix_shape *shape, const struct opencl_matrix_product *product);
enum gt_status opencl_matrix_end(struct opencl_launch *launch, const struct opencl_matrix_shape *shape,
                                 const struct opencl_matrix_product *product);

/* opencl_matrix_takes() returns true when matrix units compute this product; opencl_matrix_run() computes it. */
bool opencl_matrix_takes(const struct opencl_backend *cl, const struct op_call *call);
enum gt_status opencl_matrix_run(struct backend *backend, const struct op_call *call);

#endif
