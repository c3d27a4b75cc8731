/* CLBlast, if installed, for fp32 products; its temporary buffer is part of the plan. */
#ifndef GPT_TRAIN_OPENCL_OPENCL_CLBLAST_H
#define GPT_TRAIN_OPENCL_OPENCL_CLBLAST_H

#include "backends/opencl/opencl.h"

/* Opens the library into cl->clblast.  It stays NULL when CLBlast is not installed, is switched off
 * (GPT_TRAIN_OPENCL_CLBLAST=0), would hide a temporary buffer from the plan, or, on NVIDIA, is not
 * switched on (=1). */
void opencl_clblast_open(struct opencl_backend *cl);
void opencl_clblast_close(struct opencl_backend *cl);
/* If CLBlast is chosen, multiplies matrices with known products, in its own scratch memory, before
 * there is an arena. If a product is wrong or fails, logs a note and disables CLBlast. */
void opencl_clblast_prove(struct opencl_backend *cl);
/* Releases the sub-buffers of the arena or of scratch memory; called before that is released. */
void opencl_clblast_forget(struct opencl_backend *cl);
/* Returns true when CLBlast computes this gemm: all operands are fp32, and it supports their sizes.
 */
bool opencl_clblast_usable(const struct opencl_backend *cl, const struct op_call *call);
/* Returns the bytes of temporary buffer that CLBlast needs for this shape on this device. */
size_t opencl_clblast_workspace_bytes(const struct opencl_backend *cl, const struct op_call *call);
/* d = op(a) op(b), or d += if `accumulate`.  The caller adds the bias.  Errors: GT_DEVICE,
 * GT_NO_MEMORY. */
enum gt_status opencl_clblast_run(struct opencl_backend *cl, const struct op_call *call,
                                  bool accumulate);

#endif
