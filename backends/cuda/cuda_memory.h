/* The arena, and copies to and from it through pinned memory. */
#ifndef GPT_TRAIN_CUDA_CUDA_MEMORY_H
#define GPT_TRAIN_CUDA_CUDA_MEMORY_H

#include "backends/cuda/cuda.h"

/* Errors: GT_NO_MEMORY, GT_DEVICE. */
enum gt_status cuda_memory_staging_create(struct cuda_backend *cuda);
/* Frees the arena and the staging buffer, where they exist. */
void cuda_memory_free(struct cuda_backend *cuda);

/* backend_ops.arena.  Additional error: GT_NO_FIT when too little memory is free, logged with the
 * processes that use it. */
enum gt_status cuda_memory_arena(struct backend *backend, const struct backend_segment *segments,
                                 int32_t count);
/* Fills the arena with zeros, in order with the ops. */
enum gt_status cuda_memory_clear(struct backend *backend);
enum gt_status cuda_memory_upload(struct backend *backend, struct address to, const void *from,
                                  size_t bytes);
enum gt_status cuda_memory_download(struct backend *backend, void *to, struct address from,
                                    size_t bytes);
/* backend_ops.download_later.  Defers up to CUDA_RESULTS_MAX results of up to CUDA_RESULT_BYTES
 * each; beyond that it waits. */
enum gt_status cuda_memory_download_later(struct backend *backend, void *to, struct address from,
                                          size_t bytes);
/* Begins the copy of a fetch or a store on its queue, after the ops that were enqueued before.  A
 * segment that is not pinned is copied through the staging buffer instead, in order with the ops.
 */
enum gt_status cuda_memory_copy_start(struct backend *backend, const struct op_call *call);
/* Creates the events of asynchronous copies, once.  Errors: GT_DEVICE. */
enum gt_status cuda_memory_events_create(struct backend *backend);
/* Has what `stream` gets next wait for the ops that were enqueued before. */
enum gt_status cuda_memory_copy_fork(struct backend *backend, cudaStream_t stream);
/* Has the wait that names the call's operands wait for all that `stream` has now. */
enum gt_status cuda_memory_copy_mark(struct backend *backend, const struct op_call *call,
                                     cudaStream_t stream);
/* Has the ops that follow wait for the copy of x to y, or for the exchange. */
enum gt_status cuda_memory_copy_wait(struct backend *backend, const struct op_call *wait);
/* Copies the results to their destinations.  The caller has waited for the stream. */
void cuda_memory_results_give(struct cuda_backend *cuda);

#endif
