/* Matrix units: which a device should have, and the proof that products on them are right. */
#ifndef GPT_TRAIN_OPENCL_OPENCL_MATRIX_H
#define GPT_TRAIN_OPENCL_OPENCL_MATRIX_H

#include "backends/opencl/opencl.h"

#define OPENCL_MATRIX_ALL UINT32_MAX /* of dtypes: those that the unit has */

/* What the device should have, by its vendor and generation; nothing is tried. */
void opencl_matrix_candidate(const struct opencl_backend *cl, struct opencl_matrix *out);
/* Whether an earlier process has proven it with this device, driver and version. */
bool opencl_matrix_is_known(const struct opencl_backend *cl);
/* Takes the candidate with those of its dtypes that are in `dtypes`, compiles its kernels and multiplies known matrices;
 * a dtype for which that fails is left out, which a line of the log says, with the reason.  `lost` is the reason why some
 * are not in `dtypes`, "" where none is missing. */
void opencl_matrix_open(struct opencl_backend *cl, uint32_t dtypes, const char *lost);
/* "bfloat16, float16 products on matrix units" for people, and what is not. */
void opencl_matrix_texts(const struct opencl_backend *cl, char *has, size_t has_size, char *lacks, size_t lacks_size);

#endif
