/* Measures which kernels compute products fastest, and keeps the result in the user's cache. */
#ifndef GPT_TRAIN_OPENCL_OPENCL_TUNE_H
#define GPT_TRAIN_OPENCL_OPENCL_TUNE_H

#include "backends/opencl/opencl.h"

/* Loads the result of an earlier measurement on this device with this version, else the defaults.
 */
void opencl_tuning_load(struct opencl_backend *cl);
/* For each dtype, times every shape of opencl_matrix_shapes if matrix units compute it, else of
 * opencl_gemm_shapes; then times CLBlast.  Uses its own scratch memory, before there is an arena.
 * Stores and applies the best.  Errors: GT_DEVICE, GT_NO_MEMORY. */
enum gt_status opencl_tuning_measure(struct opencl_backend *cl);

/* backend_ops.choose and algorithms.  One choice affects bits: whether CLBlast computes those fp32
 * products that it can. */
enum gt_status opencl_tuning_choose(struct backend *backend,
                                    const struct backend_algorithm *algorithms, size_t count);
const struct backend_algorithm *opencl_tuning_algorithms(struct backend *backend, size_t *count);

#endif
