/* The tuning as one line of text in the user's cache: indices into the tables of kernel shapes.  Needs no OpenCL. */
#ifndef GPT_TRAIN_OPENCL_OPENCL_TUNING_TEXT_H
#define GPT_TRAIN_OPENCL_OPENCL_TUNING_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/dtype.h"

#define OPENCL_TUNING_TEXT_MAX 128

/* Results of --tune, or the defaults for the kind of device; indices into the op's own table of shapes. */
struct opencl_tuning {
    int32_t gemm_shape[DTYPE_COUNT];   /* by storage dtype; see opencl_gemm_shapes */
    int32_t matrix_shape[DTYPE_COUNT]; /* by dtype of a and b: the largest of opencl_matrix_shapes to use */
    bool gemm_clblast;                 /* CLBlast computes the fp32 products that it supports */
};

/* The sizes of the tables. */
struct opencl_tuning_limits {
    int32_t gemm_shapes, matrix_shapes;
};

/* Returns the length of the text, without its terminator. */
size_t opencl_tuning_write(const struct opencl_tuning *tuning, char text[static OPENCL_TUNING_TEXT_MAX]);
/* The inverse.  Returns false, with *out unchanged, for any other text and for indices outside the tables. */
bool opencl_tuning_parse(const char *text, size_t bytes, struct opencl_tuning_limits limits, struct opencl_tuning *out);

#endif
