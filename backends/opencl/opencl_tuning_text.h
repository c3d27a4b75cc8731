/* Which kernels compute products, as the user's cache keeps it: a line of indices into tables.  Nothing here knows OpenCL. */
#ifndef GPT_TRAIN_OPENCL_OPENCL_TUNING_TEXT_H
#define GPT_TRAIN_OPENCL_OPENCL_TUNING_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/dtype.h"

#define OPENCL_TUNING_TEXT_MAX 128

/* Answers of --tune, or the defaults for the kind of device; indices into the op's own table of shapes. */
struct opencl_tuning {
    int32_t gemm_shape[DTYPE_COUNT];   /* by storage dtype; see opencl_gemm_shapes */
    int32_t matrix_shape[DTYPE_COUNT]; /* by dtype of a and b, the largest of opencl_matrix_shapes to be used */
    bool gemm_clblast;                 /* CLBlast takes the fp32 products that it can */
};

/* How many shapes each table has. */
struct opencl_tuning_limits {
    int32_t gemm_shapes, matrix_shapes;
};

/* Characters of the text, which ends in a terminator. */
size_t opencl_tuning_write(const struct opencl_tuning *tuning, char text[static OPENCL_TUNING_TEXT_MAX]);
/* The inverse.  False, and nothing taken, for any other text and for shapes that the tables do not have. */
bool opencl_tuning_parse(const char *text, size_t bytes, struct opencl_tuning_limits limits, struct opencl_tuning *out);

#endif
