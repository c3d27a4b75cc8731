/* Products: the tile shapes from which --tune chooses, and how matrix units use them. */
#ifndef GPT_TRAIN_OPENCL_OPENCL_GEMM_H
#define GPT_TRAIN_OPENCL_OPENCL_GEMM_H

#include "backends/opencl/opencl_known.h"
#include "backends/opencl/opencl_launch.h"

/* A square tile of d, which a group computes.  On vector units a group has side x side work-items;
 * each computes each x each elements, `inner` steps of K at a time.  A group of one work-item is
 * for CPUs (kernels/gemm_single.cl).  On matrix units, for which `side` is 0, the tile is divided
 * among warps of 32 work-items: down x across. */
struct opencl_shape {
    const char *name;
    int32_t tile, side, each, inner, down, across;
};

/* The first of opencl_gemm_shapes that fits a device is its default. opencl_matrix_shapes begins
 * with the largest. */
extern const struct opencl_shape opencl_gemm_shapes[], opencl_matrix_shapes[];
extern const int32_t opencl_gemm_shape_count, opencl_matrix_shape_count;

/* Returns false when the device allows too few work-items or too little local memory for the shape,
 * or is not of the shape's kind (CPU or not). */
bool opencl_shape_fits(const struct opencl_backend *cl, const struct opencl_shape *shape);
/* Multiplies on matrix units, in tiles of `shape`. */
enum gt_status opencl_matrix_run(struct opencl_backend *cl, const struct op_call *call,
                                 const struct opencl_shape *shape,
                                 const struct opencl_product *product);

#endif
