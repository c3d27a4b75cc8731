/* Exchanges between ranks, from card to card. */
#ifndef GPT_TRAIN_CUDA_CUDA_NCCL_H
#define GPT_TRAIN_CUDA_CUDA_NCCL_H

#include "backends/cuda/cuda.h"

/* backend_ops.join. */
enum gt_status cuda_nccl_join(struct backend *backend, struct dist *dist);
/* backend_ops.pass; also measures what NCCL holds of the card, as part of the context. */
enum gt_status cuda_nccl_pass(struct backend *backend, const struct backend_pass *pass,
                              double *seconds);
void cuda_nccl_close(struct cuda_backend *cuda);
/* Returns how many exchanges, from the first on, are one group: those of a piece. */
size_t cuda_exchanges_alike(const struct backend *backend, const struct op_call *calls,
                            size_t count);
enum gt_status cuda_exchanges_start(struct backend *backend, const struct op_call *calls,
                                    size_t count);
/* Enqueues the calls by start().  If there are exchanges among them, ranks begin together, and wait
 * for the end. */
typedef enum gt_status cuda_calls_start(struct backend *backend, const struct op_call *calls,
                                        size_t count);
enum gt_status cuda_nccl_together(struct backend *backend, const struct op_call *calls,
                                  size_t count, cuda_calls_start *start);

#endif
