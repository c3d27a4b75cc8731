/* Matrix units: selected by vendor and generation, then proven by compiling and by products with
 * known results. */
#ifndef GPT_TRAIN_OPENCL_OPENCL_MATRIX_H
#define GPT_TRAIN_OPENCL_OPENCL_MATRIX_H

#include "backends/opencl/opencl.h"

#define OPENCL_MATRIX_ALL UINT32_MAX /* all dtypes that the unit supports */

/* Takes the candidate, limited to `dtypes`, compiles its kernels and multiplies known matrices.  A
 * dtype that fails is dropped, and the log gives the reason.  `lost` is the reason why `dtypes`
 * lacks some dtypes, "" if it lacks none. */
void opencl_matrix_open(struct opencl_backend *cl, uint32_t dtypes, const char *lost);

#endif
