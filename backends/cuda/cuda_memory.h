/* The card's memory: the arena, and copies to and from it through pinned memory. */
#ifndef GPT_TRAIN_CUDA_CUDA_MEMORY_H
#define GPT_TRAIN_CUDA_CUDA_MEMORY_H

#include "backends/cuda/cuda.h"

/* Half of the staging buffer: the most that one copy moves. */
#define CUDA_STAGING_BYTES ((size_t)2 << 20)
/* A larger difference in used memory at opening is attributed to other processes. */
#define CUDA_CONTEXT_BYTES_MAX ((uint64_t)4 << 30)

/* Errors: GT_NO_MEMORY, GT_DEVICE. */
enum gt_status cuda_memory_staging_create(struct cuda_backend *cuda);
/* Creates the stream for uploads that run concurrently with the ops, and its event.  Errors: GT_DEVICE. */
enum gt_status cuda_memory_copies_create(struct cuda_backend *cuda);
/* Returns the device memory that concurrent uploads need; it is allocated with the arena. */
uint64_t cuda_memory_ahead_bytes(const struct cuda_backend *cuda);
/* Frees the arena and the staging buffer, where they exist. */
void cuda_memory_free(struct cuda_backend *cuda);

/* backend_ops.arena.  Additional error: GT_NO_FIT when too little memory is free, logged with the processes that use
 * it. */
enum gt_status cuda_memory_arena(struct backend *backend, const struct backend_segment *segments, int32_t count);
/* Fills the arena with zeros, in order on queue 0. */
enum gt_status cuda_memory_clear(struct backend *backend);
enum gt_status cuda_memory_upload(struct backend *backend, int32_t queue, struct address to, const void *from,
                                  size_t bytes);
enum gt_status cuda_memory_download(struct backend *backend, int32_t queue, void *to, struct address from,
                                    size_t bytes);
/* backend_ops.download_later.  Defers up to CUDA_RESULTS_MAX results of up to CUDA_RESULT_BYTES each; beyond that it
 * waits. */
enum gt_status cuda_memory_download_later(struct backend *backend, int32_t queue, void *to, struct address from,
                                          size_t bytes);
/* Copies the results to their destinations.  The caller has waited for the stream. */
void cuda_memory_results_give(struct cuda_backend *cuda);

#endif
