/* The tile shapes of gemm, from which --tune chooses. */
#ifndef GPT_TRAIN_OPENCL_OPENCL_GEMM_H
#define GPT_TRAIN_OPENCL_OPENCL_GEMM_H

#include "backends/opencl/opencl_kernels.h"

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
#endif
