/* Values of any float dtype in a device's tensors. */
#ifndef GPT_TRAIN_SESSION_VALUES_H
#define GPT_TRAIN_SESSION_VALUES_H

#include "exec/exec.h"
#include "model/graph.h"

/* Copy values[count] to the elements of `tensor` from `first` on, and back.  An fp32 tensor gets
 * the values unchanged; the upload to a 16-bit tensor rounds them to nearest, in a buffer on the
 * stack.  Errors: those of exec_upload() and exec_download(). */
enum gt_status values_upload(struct exec *exec, const struct graph *graph, int32_t tensor,
                             int64_t first, const float *values, int64_t count);
enum gt_status values_download(struct exec *exec, const struct graph *graph, int32_t tensor,
                               int64_t first, float *values, int64_t count);

#endif
