/* Matrix units: selects the kind that a device should have, and proves that their products are correct. */
#ifndef GPT_TRAIN_OPENCL_OPENCL_MATRIX_H
#define GPT_TRAIN_OPENCL_OPENCL_MATRIX_H

#include "backends/opencl/opencl.h"

#define OPENCL_MATRIX_ALL UINT32_MAX /* all dtypes that the unit supports */

/* Returns the units that the device should have by its vendor and generation.  Tries nothing. */
void opencl_matrix_candidate(const struct opencl_backend *cl, struct opencl_matrix *out);
/* Returns true when an earlier process proved the units with this device, driver and version. */
bool opencl_matrix_is_known(const struct opencl_backend *cl);
/* Takes the candidate, limited to `dtypes`, compiles its kernels and multiplies known matrices.  A dtype that fails is
 * dropped, and the log gives the reason.  `lost` is the reason why `dtypes` lacks some dtypes, "" if it lacks none. */
void opencl_matrix_open(struct opencl_backend *cl, uint32_t dtypes, const char *lost);
/* Writes texts for people: the dtypes whose products use matrix units ("bfloat16, float16 products on matrix units"),
 * and the work that does not use them. */
void opencl_matrix_texts(const struct opencl_backend *cl, char *has, size_t has_size, char *lacks, size_t lacks_size);

#endif
