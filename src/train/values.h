/* Copies floats from the host to tensors of any float dtype, and back: rounded to nearest on upload, exact on
 * download. */
#ifndef GPT_TRAIN_TRAIN_VALUES_H
#define GPT_TRAIN_TRAIN_VALUES_H

#include <stdint.h>

#include "base/status.h"
#include "exec/exec.h"
#include "model/graph.h"

/* Copy values[count] to elements first .. of `tensor`, and back, through a buffer on the stack if the tensor has 16
 * bits.  Errors: those of exec_upload() and exec_download(). */
enum gt_status values_upload(struct exec *exec, const struct graph *graph, int32_t tensor, int64_t first,
                             const float *values, int64_t count);
enum gt_status values_download(struct exec *exec, const struct graph *graph, int32_t tensor, int64_t first,
                               float *values, int64_t count);

#endif
