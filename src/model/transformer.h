/* The model's builder: one function per part of the model, each of which appends its ops to a
 * program. */
#ifndef GPT_TRAIN_MODEL_TRANSFORMER_H
#define GPT_TRAIN_MODEL_TRANSFORMER_H

#include "model/model.h"

/* Appends the embedding, the blocks, the last norm, giving hidden states [N, C], and the loss in
 * chunks.  `train` applies dropout and replaces the logits by their gradient. */
enum gt_status transformer_build_loss(const struct model *model, const struct program_io *io,
                                      bool train);
/* Appends the forward pass with key-value caches [2, B, capacity, KV D], of which `cache` is that
 * of block 0 and the next blocks' follow, and returns logits [N, Vp] of every row. With `logits`
 * NULL (prefill), the last block ends once its keys and values are in the cache. */
enum gt_status transformer_build_generate(const struct model *model, const struct program_io *io,
                                          int32_t cache, int32_t *logits);

#endif
