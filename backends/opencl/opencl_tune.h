/* How fast products are on this device, and which kernels compute them: measured once, kept in the user's cache. */
#ifndef GPT_TRAIN_OPENCL_OPENCL_TUNE_H
#define GPT_TRAIN_OPENCL_OPENCL_TUNE_H

#include "backends/opencl/opencl.h"

/* What an earlier measurement found on this device with this version, else the defaults. */
void opencl_tuning_load(struct opencl_backend *cl);
/* Times every shape of opencl_gemm_shapes in each dtype, and CLBlast, in a scratch of its own, before there is an arena;
 * keeps and uses the best.  Errors: GT_DEVICE, GT_NO_MEMORY. */
enum gt_status opencl_tuning_measure(struct opencl_backend *cl);

/* backend_ops.choose and choices: the one choice that bits depend on, whether CLBlast takes the fp32 products that it can. */
enum gt_status opencl_tuning_choose(struct backend *backend, const struct backend_choice *choices, size_t count);
const struct backend_choice *opencl_tuning_choices(struct backend *backend, size_t *count);

#endif
