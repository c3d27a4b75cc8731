/* Bound programs as CUDA graphs: each is recorded once, before the first step, and replayed by one call.
 *
 * Everything that changes from run to run is in device memory (the block of scalars, the batch), so that a replay has
 * no arguments.
 */
#ifndef GPT_TRAIN_CUDA_CUDA_GRAPH_H
#define GPT_TRAIN_CUDA_CUDA_GRAPH_H

#include "backends/cuda/cuda.h"

/* Records what `run` enqueues for the calls, which have run before.  When that fails, logs it once; these calls and all
 * programs after them are then launched call by call.  Errors: GT_DEVICE where the card is lost. */
enum gt_status cuda_graph_record(struct cuda_backend *cuda, const struct op_call *calls, size_t count,
                                 enum gt_status (*run)(struct backend *, int32_t, const struct op_call *, size_t));
/* Returns the graph of these calls, or NULL when there is none. */
cudaGraphExec_t cuda_graph_find(const struct cuda_backend *cuda, const struct op_call *calls, size_t count);
void cuda_graphs_destroy(struct cuda_backend *cuda);

#endif
