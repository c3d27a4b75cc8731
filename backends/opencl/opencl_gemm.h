/* The shapes of gemm's tiles, among which --tune chooses. */
#ifndef GPT_TRAIN_OPENCL_OPENCL_GEMM_H
#define GPT_TRAIN_OPENCL_OPENCL_GEMM_H

#include "backends/opencl/opencl_kernels.h"

/* side x side work-items of a group, each x each elements of d per work-item, `inner` steps of K at a time.  A group of one
 * work-item is for processors (kernels/gemm_single.cl). */
struct opencl_gemm_shape {
    const char *name;
    int32_t side, each, inner;
};

/* The first that fits a device is its default. */
extern const struct opencl_gemm_shape opencl_gemm_shapes[];
extern const int32_t opencl_gemm_shape_count;

/* A device may allow too few work-items or too little local memory for a shape, or be of the wrong kind. */
bool opencl_gemm_shape_fits(const struct opencl_backend *cl, const struct opencl_gemm_shape *shape);
#endif
