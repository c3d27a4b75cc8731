/* The tile shapes of gemm, from which --tune chooses, and launches on matrix units. */
#ifndef GPT_TRAIN_OPENCL_OPENCL_GEMM_H
#define GPT_TRAIN_OPENCL_OPENCL_GEMM_H

#include "backends/opencl/opencl_launch.h"

/* d[m, n] (+)= op(a) op(b) + bias, with a of `dtype`.  is_wide: all rows of a and b begin at multiples of 16 bytes. */
struct opencl_product {
    enum dtype dtype;
    int64_t m, n, k;
    bool transpose_a, transpose_b, accumulate, is_wide;
};

/* A group has side x side work-items.  Each computes each x each elements of d, `inner` steps of K at a time.  A group
 * of one work-item is for CPUs (kernels/gemm_single.cl). */
struct opencl_gemm_shape {
    const char *name;
    int32_t side, each, inner;
};

/* The first shape that fits a device is its default. */
extern const struct opencl_gemm_shape opencl_gemm_shapes[];
extern const int32_t opencl_gemm_shape_count;

/* Returns false when the device allows too few work-items or too little local memory for the shape, or is not of the
 * shape's kind (CPU or not). */
bool opencl_gemm_shape_fits(const struct opencl_backend *cl, const struct opencl_gemm_shape *shape);

/* opencl_gemm_matrix.c: a square tile of d, divided among warps of 32 work-items: warps_down x warps_across. */
struct opencl_matrix_shape {
    const char *name;
    int32_t tile, warps_down, warps_across;
};

/* Largest first. */
extern const struct opencl_matrix_shape opencl_matrix_shapes[];
extern const int32_t opencl_matrix_shape_count;

/* Returns false when the device allows too few work-items or too little local memory for the shape. */
bool opencl_matrix_shape_fits(const struct opencl_backend *cl, const struct opencl_matrix_shape *shape);
/* Returns the shape for a product that matrix units compute, else NULL. */
const struct opencl_matrix_shape *opencl_matrix_shape_choose(const struct opencl_backend *cl,
                                                             const struct opencl_product *product);
/* begin() starts the launch.  The caller then passes a and b as arrays, and bias and d as tensors; end() adds the
 * remaining arguments and runs it. */
void opencl_matrix_begin(struct opencl_launch *launch, struct opencl_backend *cl,
                         const struct opencl_matrix_shape *shape, const struct opencl_product *product);
enum gt_status opencl_matrix_end(struct opencl_launch *launch, const struct opencl_matrix_shape *shape,
                                 const struct opencl_product *product);

#endif
