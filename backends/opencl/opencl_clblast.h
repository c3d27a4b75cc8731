/* CLBlast, where it is installed: fp32 products, with a temporary buffer that is part of the plan.
 *
 * A fast path and not a need; opened at run time, so that a build knows nothing of it.
 */
#ifndef GPT_TRAIN_OPENCL_OPENCL_CLBLAST_H
#define GPT_TRAIN_OPENCL_OPENCL_CLBLAST_H

#include "backends/opencl/opencl.h"

/* Opens the library into cl->clblast; NULL stays there when it is not installed, is switched off
 * (GPT_TRAIN_OPENCL_CLBLAST=0), or would hide a temporary from the plan. */
void opencl_clblast_open(struct opencl_backend *cl);
void opencl_clblast_close(struct opencl_backend *cl);
/* Where CLBlast is chosen: multiplies numbers whose products are known, in a scratch of its own, before there is an arena; leaves
 * it alone from then on, with a note, where a product is wrong or fails. */
void opencl_clblast_prove(struct opencl_backend *cl);
/* Gives up what it keeps of the arena, which is about to be released. */
void opencl_clblast_forget(struct opencl_backend *cl);
/* Whether CLBlast is to compute a gemm: all operands fp32, sizes that it takes. */
bool opencl_clblast_usable(const struct backend *backend, const struct op_call *call);
/* What its temporary needs for this shape on this device. */
size_t opencl_clblast_workspace_bytes(const struct backend *backend, const struct op_call *call);
/* d = op(a) op(b), or d += where `accumulate`; the bias is the caller's.  Errors: GT_DEVICE, GT_NO_MEMORY. */
enum gt_status opencl_clblast_run(struct backend *backend, const struct op_call *call, bool accumulate);

#endif
